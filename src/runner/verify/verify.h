// The oracle: compares every captured size of every runner, after all captures, with the same kernels on isolated
// memory.
//
// Eager and graph runs share program and memory plan, so a fault of the plan would corrupt both alike. The oracle
// compares each size's replay, bit for bit, with an isolated run. In that run every value has its own guarded
// allocation, which is filled with NaN first.
//
// The oracle notices a padded row that influences a real one: padded rows have a token id whose embedding row is NaN,
// and in the isolated run the padded rows of attention's output are NaN. The batches have several requests with cached
// prefixes, and other lengths than the captures. Each cache group takes pages from its own pool, without the pages
// before a window. Pages that belong to no request are NaN, which exposes a kernel that reads another group's page
// table. KV cache contents are compared too.
//
// The head, which is not captured, is compared for its sizes, and so are a next-token layer and its head; the layer's
// sizes are those that double, and the largest. verify_vision.h compares a vision tower. A prefill size
// with a full graph is compared in both forms. If the last attention computes wanted rows alone, each prefill size
// above 1 is also compared with a batch that wants the last row of each request, which other kernels compute.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/model_runner.h"

namespace tessera {

struct VerifyRow {
  // "prefill" "prefill, full" "prefill, last rows" "prefill, full, last rows" "decode" "head" "draft" "draft head"
  // "vision"
  std::string runner;
  std::int64_t size = 0;
  std::int64_t real = 0;   // rows that are not padding
  std::string difference;  // empty: the results are equal
};

struct VerifyReport {
  std::vector<VerifyRow> rows;
  double seconds = 0;
  bool equal() const;  // true if all rows are equal and there is at least one
};

// Compares every size, and captures pending sizes first. Precondition: runner.capture() ran, and no forward is in
// flight. Overwrites the KV cache, and needs memory for one isolated copy of the largest size. An error means that the
// comparison failed to run; a difference is a row of the report. With several ranks each compares its own results. The
// report is rank 0's, and a difference on another rank is an error that names it.
Result<VerifyReport> verify(ModelRunner& runner, bool show_progress);

}  // namespace tessera
