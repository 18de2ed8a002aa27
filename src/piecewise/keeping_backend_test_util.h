// A device-specific backend for tests. It keeps a list of the calls that it gets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/piecewise/backend.h"

namespace tessera::testing {

// The graph of a device that cannot record. It keeps the bound program and enqueues this program at every launch.
class KeptProgram final : public RecordedGraph {
 public:
  KeptProgram(const BoundProgram& program, int& launches) : program_(program), launches_(launches) {}
  Status launch(Stream& stream) override {
    ++launches_;
    return program_.enqueue(stream);
  }
  GraphStats stats() const override { return {.nodes = static_cast<std::int64_t>(program_.num_instructions())}; }

 private:
  const BoundProgram& program_;
  int& launches_;
};

class KeepingBackend final : public PiecewiseBackend {
 public:
  Result<std::unique_ptr<RecordedGraph>> capture(const BoundProgram& program, Stream& /*stream*/,
                                                 const std::string& what) const override {
    captured.push_back(what);
    if (what == refused) return unimplemented("no graph for " + what);
    return std::make_unique<KeptProgram>(program, launches);
  }

  std::string refused{};  // name of the part whose capture fails
  mutable std::vector<std::string> captured{};
  mutable int launches = 0;
};

}  // namespace tessera::testing
