#include "tessera/server/work/text_work.h"

#include <utility>

namespace tessera {
namespace {

thread_local TextPoolScope* current_pool = nullptr;

bool pool_takes(TextWork pool, TextWork work) {
  if (pool == work) return true;
  switch (pool) {
    case TextWork::kImages: return true;
    case TextWork::kGrammars: return work == TextWork::kLarge;
    default: return false;
  }
}

}  // namespace

TextPoolScope::TextPoolScope(TextWork pool) : pool_(pool), outer_(std::exchange(current_pool, this)) {}
TextPoolScope::~TextPoolScope() { current_pool = outer_; }

ApiStatus TextPoolScope::take_on(TextWork work) {
  if (pool_takes(pool_, work)) return api_ok();
  moves_to_ = work;
  return internal_error("the request is for another pool of threads");
}

ApiStatus take_on(TextWork work) { return current_pool == nullptr ? api_ok() : current_pool->take_on(work); }

ApiStatus take_on_text(std::size_t bytes) {
  if (current_pool == nullptr) return api_ok();
  current_pool->text_bytes_ += bytes;
  return current_pool->text_bytes_ > kSmallTextBytes ? take_on(TextWork::kLarge) : api_ok();
}

}  // namespace tessera
