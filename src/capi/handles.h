// Defines the opaque types of tessera.h.
#pragma once

#include <tessera.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/capi/adapter_calls.h"
#include "tessera/capi/embedded_engine.h"
#include "tessera/capi/event_queue.h"

struct tessera_engine {
  std::shared_ptr<tessera::capi::EmbeddedEngine> engine;
  std::shared_ptr<tessera::capi::AdapterCalls> adapters;
};

struct tessera_request {
  std::weak_ptr<tessera::capi::EmbeddedEngine> engine;  // expires when the engine is closed
  std::shared_ptr<tessera::capi::EmbeddedEngine::Job> job;
  std::shared_ptr<tessera::capi::EventQueue> events;
  tessera::capi::EventQueue::Item current{};  // the event that was taken last; owns its text
};

namespace tessera::capi {

// Copies the text. The caller frees the copy. Throws bad_alloc if memory runs out.
inline char* copy_out(std::string_view text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

}  // namespace tessera::capi
