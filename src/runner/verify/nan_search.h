// Finds the operator that made the first NaN of a forward. It runs the kernels again one by one and inspects each
// result. It is only for debug mode and tests, since it waits for the device after every kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/runner/graphs/graph_runner.h"

namespace tessera {

class NanSearch {
 public:
  // `stream` and `arena` must outlive this object.
  NanSearch(Stream& stream, const Arena& arena) : stream_(stream), arena_(arena) {}

  // Finds the first NaN in the real output rows (not padding) of the forward that `runner` has just run at `size`.
  // Returns its place, for example "%logits row 3 column 17", or an empty string if there is none.
  Result<std::string> in_outputs(const GraphRunner& runner, std::int64_t size, std::int64_t real_rows);
  // Fills the forward's values with NaN and runs the forward again, operator by operator, from the inputs that are
  // still staged. Returns a text about the NaN's origin. The caller appends the text to its error message. The text
  // names the operator that makes the first NaN, and the part that contains this operator. If an input or weight of
  // this operator already has a NaN, the text also names that operand. If no operator makes a NaN when the operators
  // run one by one, origin() runs the forward once more, with the graphs of the parts. The text then names the part
  // whose graph makes a NaN, or says that the forward makes none when it runs again.
  Result<std::string> origin(const GraphRunner& runner, std::int64_t size, std::int64_t real_rows);

 private:
  struct Forward {
    const Executable& executable;
    ir::Bucket bucket;
    ir::Bucket real;  // the values of the symbols for the forward without padding
  };
  Result<std::string> first_step(const Forward& forward);
  Result<std::string> first_graph(const Forward& forward);
  Result<std::string> blame(const Forward& forward, std::size_t part, const ir::Node& call, const std::string& place);
  // Returns the place of the first NaN in the real rows, such as " row 3 column 17", or " element 3" in a vector.
  // Returns an empty string if there is none. The result is also empty for values that are not searched. These are
  // values that are not floating-point or have no dimension, and values in which any dimension but the first depends on
  // the batch.
  Result<std::string> place_in(const ir::Type& type, DeviceAddress data, const ir::Bucket& real);

  Stream& stream_;
  const Arena& arena_;
  std::vector<std::byte> host_;
};

}  // namespace tessera
