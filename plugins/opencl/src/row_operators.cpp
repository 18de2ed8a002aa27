// Implements norms, activations, arithmetic and gathered rows (kernels/rows.cl).
#include "operators.h"

#include <cstring>
#include <string>

namespace opencl {
namespace {

enum Activation : cl_uint { kSilu, kGeluTanh, kGeluErf, kSoftcap };
constexpr std::size_t kWord = 2;  // size in bytes of the words in which rows are copied

StorageTypes types_of(const tessera_plugin_tensor& x) { return {x.dtype, TESSERA_PLUGIN_F32}; }

cl_float eps_of(const tessera_plugin_node& node) { return static_cast<cl_float>(attribute_double(node, "eps", 0)); }

// Binds rms_norm or head_norm: a norm over as many values as the weight has.
std::int32_t bind_norm(Binding& b) {
  const std::int64_t n = elements(b.operand(1));
  return b.launch(Source::kRows, "rms_norm", types_of(b.operand(0)), Binding::groups(elements(b.operand(0)) / n),
                  b.operand(0).data, b.operand(1).data, b.result(0).data, static_cast<cl_uint>(n), eps_of(b.node()),
                  norm_form(b.node()));
}

std::int32_t bind_add_norm(Binding& b) {
  return b.launch(Source::kRows, "add_rms_norm", types_of(b.operand(0)), Binding::groups(rows(b.operand(0))),
                  b.operand(0).data, b.operand(1).data, b.operand(2).data, b.result(0).data, b.result(1).data,
                  static_cast<cl_uint>(cols(b.operand(0))), eps_of(b.node()), norm_form(b.node()));
}

cl_uint gelu_of(const tessera_plugin_node& node) { return attribute_bool(node, "tanh", true) ? kGeluTanh : kGeluErf; }

std::int32_t bind_unary(Binding& b, cl_uint kind) {
  const std::int64_t n = elements(b.operand(0));
  return b.launch(Source::kRows, "unary", types_of(b.operand(0)), {n}, b.operand(0).data, b.result(0).data,
                  static_cast<cl_ulong>(n), kind, static_cast<cl_float>(attribute_double(b.node(), "cap", 1)));
}
std::int32_t bind_silu(Binding& b) { return bind_unary(b, kSilu); }
std::int32_t bind_gelu(Binding& b) { return bind_unary(b, gelu_of(b.node())); }
std::int32_t bind_softcap(Binding& b) { return bind_unary(b, kSoftcap); }

std::int32_t bind_gated(Binding& b, cl_uint kind) {
  const std::int64_t n = cols(b.result(0));
  return b.launch(Source::kRows, "gated", types_of(b.operand(0)), {n, rows(b.result(0))}, b.operand(0).data,
                  b.result(0).data, static_cast<cl_uint>(n), kind);
}
std::int32_t bind_silu_mul(Binding& b) { return bind_gated(b, kSilu); }
std::int32_t bind_gelu_mul(Binding& b) { return bind_gated(b, gelu_of(b.node())); }

// Broadcasts the second operand over the first one's leading dimensions if it is smaller.
std::int32_t bind_binary(Binding& b, cl_uint multiply) {
  const std::int64_t n = elements(b.operand(0));
  return b.launch(Source::kRows, "binary", types_of(b.operand(0)), {n}, b.operand(0).data, b.operand(1).data,
                  b.result(0).data, static_cast<cl_ulong>(n), static_cast<cl_ulong>(elements(b.operand(1))), multiply);
}
std::int32_t bind_add(Binding& b) { return bind_binary(b, 0); }
std::int32_t bind_mul(Binding& b) { return bind_binary(b, 1); }

std::int32_t bind_scale(Binding& b) {
  const std::int64_t n = elements(b.operand(0));
  return b.launch(Source::kRows, "scale", types_of(b.operand(0)), {n}, b.operand(0).data, b.result(0).data,
                  static_cast<cl_ulong>(n), static_cast<cl_float>(attribute_double(b.node(), "factor", 1)));
}

std::int32_t bind_cast(Binding& b) {
  const std::int64_t n = elements(b.operand(0));
  return b.launch(Source::kRows, "cast", {b.operand(0).dtype, b.result(0).dtype}, {n}, b.operand(0).data,
                  b.result(0).data, static_cast<cl_ulong>(n));
}

std::int32_t bind_copy(Binding& b) {
  const std::size_t bytes = static_cast<std::size_t>(elements(b.operand(0))) * element_bytes(b.operand(0).dtype);
  if (bytes > 0) b.bound().copy = Bound::Copy{b.result(0).data, b.operand(0).data, bytes};
  return TESSERA_PLUGIN_OK;
}

// Computes the number of words in a row of `cols` elements.
std::int32_t words_of(const Binding& b, std::int64_t cols, std::int32_t dtype, cl_uint& words) {
  if (element_bytes(dtype) % kWord != 0) return b.refuse("rows of u8; accepted are types of 2 bytes and more");
  words = static_cast<cl_uint>(static_cast<std::size_t>(cols) * element_bytes(dtype) / kWord);
  return TESSERA_PLUGIN_OK;
}

std::int32_t bind_gather_rows(Binding& b) {
  cl_uint words = 0;
  OPENCL_TRY(words_of(b, cols(b.operand(0)), b.operand(0).dtype, words));
  return b.launch(Source::kRows, "gather_rows", {}, {words, elements(b.operand(1))}, b.operand(0).data,
                  b.operand(1).data, b.result(0).data, words, static_cast<cl_uint>(rows(b.operand(0))));
}

std::int32_t bind_split(Binding& b) {
  cl_uint row_words = 0;
  OPENCL_TRY(words_of(b, cols(b.operand(0)), b.operand(0).dtype, row_words));
  cl_uint from = 0;
  for (std::size_t i = 0; i < b.call().num_results; ++i) {
    cl_uint words = 0;
    OPENCL_TRY(words_of(b, cols(b.result(i)), b.result(i).dtype, words));
    OPENCL_TRY(b.launch(Source::kRows, "copy_columns", {}, {words, rows(b.result(i))}, b.operand(0).data,
                        b.result(i).data, row_words, from, words));
    from += words;
  }
  return TESSERA_PLUGIN_OK;
}

// Returns the embedding's scale, rounded to the table's type as in the engine's own kernels.
cl_float rounded(double value, std::int32_t dtype) {
  const auto v = static_cast<float>(value);
  if (dtype == TESSERA_PLUGIN_F16) return static_cast<float>(static_cast<_Float16>(v));
  if (dtype != TESSERA_PLUGIN_BF16) return v;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &v, sizeof bits);
  bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
  float result = 0;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

std::int32_t bind_embedding(Binding& b) {
  const tessera_plugin_tensor& table = b.operand(1);
  const std::int64_t first = attribute_int(b.node(), "first_row", 0);
  const std::int64_t all = attribute_int(b.node(), "table_rows", rows(table));
  if (first != 0 || all != rows(table))
    return b.refuse("rows from " + std::to_string(first) + " of a table of " + std::to_string(all) +
                    "; accepted is a whole table");
  const bool given = b.has_operand(3);
  return b.launch(Source::kRows, "embedding", types_of(table), {cols(table), elements(b.operand(0))}, b.operand(0).data,
                  table.data, b.address(2), b.address(3), b.result(0).data, static_cast<cl_uint>(cols(table)),
                  static_cast<cl_int>(rows(table)), static_cast<cl_int>(given ? b.operand(3).dims[0] : -1),
                  static_cast<cl_uint>(given ? cols(b.operand(3)) : 0),
                  rounded(attribute_double(b.node(), "scale", 1), table.dtype));
}

constexpr Operator kOperators[] = {
    {"add", bind_add},     {"add_rms_norm", bind_add_norm}, {"cast", bind_cast},
    {"copy", bind_copy},   {"embedding", bind_embedding},   {"gather_rows", bind_gather_rows},
    {"gelu", bind_gelu},   {"gelu_mul", bind_gelu_mul},     {"head_norm", bind_norm},
    {"mul", bind_mul},     {"rms_norm", bind_norm},         {"scale", bind_scale},
    {"silu", bind_silu},   {"silu_mul", bind_silu_mul},     {"softcap", bind_softcap},
    {"split", bind_split},
};

}  // namespace

std::span<const Operator> row_operators() { return kOperators; }

}  // namespace opencl
