#include "tessera/runner/steps/agreed_shape.h"

#include <algorithm>
#include <vector>

#include "tessera/comm/introduction.h"

namespace tessera {

Result<BatchShape> agree_on_shape(Communicator& communicator, const BatchShape& own) {
  const std::vector<BatchShape> all = TRY(introduce(communicator, own));
  BatchShape agreed{.all_rows_wanted = true, .several_rows_each = true};
  const auto first = std::ranges::find_if(all, [](const BatchShape& shape) { return shape.tokens > 0; });
  if (first == all.end()) return internal_error("a forward for which no rank has tokens");
  for (const BatchShape& shape : all) {
    agreed.force_eager |= shape.force_eager;
    if (shape.tokens == 0) continue;
    agreed.tokens = std::max(agreed.tokens, shape.tokens);
    agreed.requests = std::max(agreed.requests, shape.requests);
    // Clears the flag unless the requests of all ranks add the same number of tokens each.
    agreed.all_rows_wanted &= shape.all_rows_wanted && shape.tokens * first->requests == first->tokens * shape.requests;
    agreed.several_rows_each &= shape.several_rows_each;
  }
  return agreed;
}

}  // namespace tessera
