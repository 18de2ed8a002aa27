// Which operator made the first NaN of a forward: its kernels are run again one by one, and what each has written is
// looked at. For debug mode and tests: every step waits for the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/runner/capture/graph_runner.h"

namespace tessera {

class NanSearch {
 public:
  // Both outlive this.
  NanSearch(Stream& stream, const Arena& arena) : stream_(stream), arena_(arena) {}

  // "%logits row 3 column 17", of the forward that `runner` just ran at `size`; empty: none in the outputs' real rows.
  Result<std::string> in_outputs(const GraphRunner& runner, std::int64_t size, std::int64_t real_rows);
  // Runs that forward again over poisoned values, from the inputs that are still staged. What was found, as the end of
  // a sentence: the operator, its part, and the operand from outside that has a NaN already; or that it is the graph.
  Result<std::string> origin(const GraphRunner& runner, std::int64_t size, std::int64_t real_rows);

 private:
  struct Forward {
    const Executable& executable;
    ir::Bucket bucket;
    ir::Bucket real;  // the same forward without padding
  };
  Result<std::string> first_step(const Forward& forward);
  Result<std::string> first_graph(const Forward& forward);
  Result<std::string> blame(const Forward& forward, std::size_t part, const ir::Node& call, const std::string& place);
  // " row 3 column 17" of the real rows; empty: none, or no such rows.
  Result<std::string> place_in(const ir::Type& type, DeviceAddress data, const ir::Bucket& real);

  Stream& stream_;
  const Arena& arena_;
  std::vector<std::byte> host_;
};

}  // namespace tessera
