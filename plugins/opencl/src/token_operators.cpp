// Implements the operators that turn logits into tokens and log-probabilities, and sampled tokens into ids
// (kernels/sample.cl and tokens.cl).
#include <algorithm>

#include "operators.h"

namespace opencl {
namespace {

cl_uint vocab_of(const Binding& b) { return static_cast<cl_uint>(cols(b.operand(0))); }
Binding::Grid row_groups(const Binding& b) { return Binding::groups(rows(b.operand(0))); }

std::int32_t bind_argmax(Binding& b) {
  return b.launch(Source::kSample, "argmax", {}, row_groups(b), b.operand(0).data, b.result(0).data, vocab_of(b));
}

std::int32_t bind_sample(Binding& b) {
  return b.launch(Source::kSample, "sample", {}, row_groups(b), b.operand(0).data, b.operand(1).data, b.operand(2).data,
                  b.operand(3).data, b.operand(4).data, b.operand(5).data, b.operand(6).data, b.operand(7).data,
                  b.result(0).data, vocab_of(b));
}

std::int32_t bind_top_logprobs(Binding& b) {
  return b.launch(Source::kTokens, "top_logprobs", {}, row_groups(b), b.operand(0).data, b.operand(1).data,
                  b.result(0).data, b.result(1).data, b.result(2).data, vocab_of(b));
}

std::int32_t bind_log_softmax(Binding& b) {
  return b.launch(Source::kTokens, "log_softmax", {}, row_groups(b), b.operand(0).data, b.result(0).data, vocab_of(b));
}

std::int32_t bind_logit_edits(Binding& b) {
  const tessera_plugin_tensor& masks = b.operand(7);
  return b.launch(Source::kTokens, "logit_edits", {}, row_groups(b), b.operand(0).data, b.operand(1).data,
                  b.operand(2).data, b.operand(3).data, b.operand(4).data, b.operand(5).data, b.operand(6).data,
                  masks.data, vocab_of(b), static_cast<cl_uint>(elements(b.operand(3))),
                  static_cast<cl_uint>(masks.dims[0]), static_cast<cl_uint>(masks.dims[1]));
}

std::int32_t bind_resolve_ids(Binding& b) {
  const auto by = static_cast<cl_int>(attribute_int(b.node(), "by", 0));
  const std::vector<std::int64_t> given = attribute_ints(b.node(), "replaced");
  cl_int8 replaced;
  for (cl_int& id : replaced.s) id = by;
  for (std::size_t i = 0; i < std::min(given.size(), std::size(replaced.s)); ++i)
    replaced.s[i] = static_cast<cl_int>(given[i]);
  const std::int64_t n = elements(b.operand(0));
  return b.launch(Source::kTokens, "resolve_ids", {}, {n}, b.operand(0).data, b.operand(1).data, b.operand(2).data,
                  b.result(0).data, static_cast<cl_uint>(n), static_cast<cl_uint>(elements(b.operand(2))), replaced,
                  by);
}

constexpr Operator kOperators[] = {
    {"argmax", bind_argmax},           {"log_softmax", bind_log_softmax}, {"logit_edits", bind_logit_edits},
    {"resolve_ids", bind_resolve_ids}, {"sample", bind_sample},           {"top_logprobs", bind_top_logprobs},
};

}  // namespace

std::span<const Operator> token_operators() { return kOperators; }

}  // namespace opencl
