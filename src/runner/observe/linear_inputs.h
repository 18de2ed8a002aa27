// Adds up the squares of the inputs of all linears and experts. Quantisation uses these sums as an importance matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/quantise/observed_input.h"
#include "tessera/runner/observe/expert_inputs.h"
#include "tessera/runner/observe/operator_observer.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

class ModelRunner;

// Observes the operators linear, quantised_linear and moe_experts. The squares in each column of an input are added up.
// For experts, this is done separately for each expert. The sums are in double precision, so the order of forwards
// changes only their rounding.
//
// Threads: the runner's thread.
class LinearInputs final : public OperatorObserver {
 public:
  // `runner` must outlive this object.
  explicit LinearInputs(ModelRunner& runner);

  Status before(const ObservedCall& call) override;

  // Returns the sums so far, in the order of the weights' names.
  std::vector<ObservedInput> inputs() const;
  // Returns the names of experts' weights that are stored in MXFP4. Their inputs are not added up.
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  Status add_linear(const ObservedCall& call);
  Status add_experts(const ObservedCall& call);
  // Reads the rows of an operand, without the padding rows.
  Result<ObservedRows> read_rows(const ObservedCall& call, std::size_t operand);
  ObservedInput& sums_of(const std::string& weight, ObservedWeight kind, std::int64_t matrices, std::int64_t cols);

  RunnerParts& parts_;
  ExpertInputs experts_;
  std::map<std::string, ObservedInput, std::less<>> inputs_;  // the key is the weight's name
  std::vector<std::string> left_out_;
  std::vector<std::byte> host_;
  std::vector<float> numbers_;
};

}  // namespace tessera
