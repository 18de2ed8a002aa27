#include "tessera/runner/steps/agreed_shape.h"

#include <algorithm>
#include <vector>

#include "tessera/comm/introduction.h"

namespace tessera {

Result<BatchShape> agree_on_shape(Communicator& communicator, const BatchShape& own) {
  const std::vector<BatchShape> all = TRY(introduce(communicator, own));
  BatchShape agreed{.decodes = true, .all_rows_wanted = true, .several_rows_each = true};
  for (const BatchShape& shape : all) {
    agreed.force_eager |= shape.force_eager;
    if (shape.tokens == 0) continue;
    agreed.tokens = std::max(agreed.tokens, shape.tokens);
    agreed.requests = std::max(agreed.requests, shape.requests);
    agreed.decodes &= shape.decodes;
    agreed.all_rows_wanted &= shape.all_rows_wanted;
    agreed.several_rows_each &= shape.several_rows_each;
  }
  if (agreed.tokens == 0) return internal_error("a forward for which no rank has tokens");
  return agreed;
}

}  // namespace tessera
