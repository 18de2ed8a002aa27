// Implements rotary position embedding and the stores of keys and values (kernels/rope.cl).
#include "operators.h"

namespace opencl {
namespace {

std::int32_t bind_rotary_table(Binding& b) {
  const std::int64_t half = elements(b.operand(1));
  const std::int64_t tokens = cols(b.operand(0));
  const std::vector<std::int64_t> given = attribute_ints(b.node(), "sections");
  cl_uint4 sections = {};
  for (std::size_t i = 0; i < given.size(); ++i) sections.s[i] = static_cast<cl_uint>(given[i]);
  return b.launch(Source::kRope, "rotary_table", {}, {half, tokens}, b.operand(0).data, b.operand(1).data,
                  b.result(0).data, static_cast<cl_uint>(tokens), static_cast<cl_uint>(half),
                  static_cast<cl_float>(attribute_double(b.node(), "scale", 1)),
                  static_cast<cl_float>(attribute_double(b.node(), "growth", 0)),
                  static_cast<cl_uint>(attribute_int(b.node(), "growth_length", 1)), sections,
                  static_cast<cl_uint>(attribute_bool(b.node(), "interleaved", false)));
}

std::int32_t bind_rotary(Binding& b) {
  const std::int64_t n = cols(b.operand(0));
  return b.launch(Source::kRope, "rotary", {b.operand(0).dtype, TESSERA_PLUGIN_F32}, {n, rows(b.operand(0))},
                  b.operand(0).data, b.operand(1).data, b.result(0).data, static_cast<cl_uint>(n),
                  static_cast<cl_uint>(attribute_int(b.node(), "head_dim", n)),
                  static_cast<cl_uint>(cols(b.operand(1)) / 2),
                  static_cast<cl_uint>(attribute_bool(b.node(), "interleaved", false)));
}

cl_ulong slots_of(const tessera_plugin_tensor& cache) { return static_cast<cl_ulong>(cache.dims[0] * cache.dims[1]); }

std::int32_t bind_kv_store(Binding& b) {
  const std::int64_t n = cols(b.operand(0));
  return b.launch(Source::kRope, "kv_store", {b.operand(0).dtype, b.operand(3).dtype}, {n, rows(b.operand(0))},
                  b.operand(0).data, b.operand(1).data, b.operand(2).data, b.operand(3).data, b.operand(4).data,
                  static_cast<cl_uint>(n), slots_of(b.operand(3)));
}

std::int32_t bind_qkv_rope_store(Binding& b) {
  const tessera_plugin_tensor& cache = b.operand(3);
  const std::int64_t heads = attribute_int(b.node(), "heads", 0);
  const std::int64_t kv_heads = cache.dims[2];
  return b.launch(Source::kRope, "qkv_rope_store", {b.operand(0).dtype, cache.dtype},
                  Binding::groups(heads + 2 * kv_heads, rows(b.operand(0))), b.operand(0).data, b.operand(1).data,
                  b.operand(2).data, cache.data, b.operand(4).data, b.address(5), b.address(6), b.result(0).data,
                  static_cast<cl_uint>(heads), static_cast<cl_uint>(kv_heads), static_cast<cl_uint>(cache.dims[3]),
                  static_cast<cl_uint>(cols(b.operand(1)) / 2), slots_of(cache), static_cast<cl_uint>(b.has_operand(5)),
                  static_cast<cl_float>(attribute_double(b.node(), "eps", 1e-6)), norm_form(b.node()));
}

constexpr Operator kOperators[] = {
    {"kv_store", bind_kv_store},
    {"qkv_rope_store", bind_qkv_rope_store},
    {"rotary", bind_rotary},
    {"rotary_table", bind_rotary_table},
};

}  // namespace

std::span<const Operator> rope_operators() { return kOperators; }

}  // namespace opencl
