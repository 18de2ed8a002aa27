// Implements paged attention (kernels/attention.cl) and makes its plan.
#include <algorithm>

#include "operators.h"

namespace opencl {
namespace {

constexpr std::int64_t kMaxHeadDim = 256;  // MAX_HEAD_DIM of the kernel

// Length in i32 of the plan's header: the number of rows, and an unused element. After the header come two elements for
// each row, its number of keys and the index of its request's first page, and then all page tables.
constexpr std::size_t kHeader = 2;
constexpr std::size_t kRowEntries = 2;

std::int32_t plan_bytes(void* /*self*/, const tessera_plugin_node* /*node*/, const tessera_plugin_limits* limits,
                        std::size_t* bytes, tessera_plugin_error* /*error*/) {
  const auto tokens = static_cast<std::size_t>(limits->max_tokens);
  const auto pages = static_cast<std::size_t>(limits->max_requests * limits->max_pages_per_request);
  *bytes = (kHeader + kRowEntries * tokens + pages) * sizeof(std::int32_t);
  return TESSERA_PLUGIN_OK;
}

std::int32_t plan(void* /*self*/, const tessera_plugin_node* /*node*/, const tessera_plugin_limits* limits,
                  const tessera_plugin_batch* batch, void* data, std::size_t* written, tessera_plugin_error* error) {
  auto* const out = static_cast<std::int32_t*>(data);
  if (batch->num_tokens > static_cast<std::size_t>(limits->max_tokens) ||
      batch->num_requests > static_cast<std::size_t>(limits->max_requests))
    return fail(error, TESSERA_PLUGIN_RESOURCE_EXHAUSTED,
                std::to_string(batch->num_tokens) + " tokens of " + std::to_string(batch->num_requests) +
                    " requests in a forward; the plan was made for " + std::to_string(limits->max_tokens) + " and " +
                    std::to_string(limits->max_requests));
  out[0] = static_cast<std::int32_t>(batch->num_tokens);
  out[1] = 0;
  std::int32_t* row = out + kHeader;
  std::size_t next = kHeader + kRowEntries * batch->num_tokens;
  for (std::size_t b = 0; b < batch->num_requests; ++b) {
    const tessera_plugin_page_table& table = batch->page_tables[b];
    const auto pages = static_cast<std::size_t>((batch->kv_lens[b] + limits->page_size - 1) / limits->page_size);
    if (pages > table.num_pages || pages > static_cast<std::size_t>(limits->max_pages_per_request))
      return fail(error, TESSERA_PLUGIN_INTERNAL,
                  "request " + std::to_string(b) + " has " + std::to_string(batch->kv_lens[b]) + " tokens in " +
                      std::to_string(table.num_pages) + " pages of " + std::to_string(limits->page_size) +
                      ", and may have " + std::to_string(limits->max_pages_per_request));
    for (std::int32_t i = 0; i < batch->query_lens[b]; ++i) {
      *row++ = batch->kv_lens[b] - batch->query_lens[b] + i + 1;
      *row++ = static_cast<std::int32_t>(next);
    }
    for (std::size_t i = 0; i < pages; ++i) {
      if (table.pages[i] < 0 || table.pages[i] >= limits->num_pages)
        return fail(error, TESSERA_PLUGIN_INTERNAL,
                    "request " + std::to_string(b) + " has page " + std::to_string(table.pages[i]) + " of " +
                        std::to_string(limits->num_pages));
      out[next++] = table.pages[i];
    }
  }
  *written = next * sizeof(std::int32_t);
  return TESSERA_PLUGIN_OK;
}

std::int32_t bind_attention(Binding& b) {
  const tessera_plugin_tensor& q = b.operand(0);
  const tessera_plugin_tensor& cache = b.operand(1);
  const std::int64_t head_dim = cache.dims[3];
  if (head_dim % 4 != 0 || head_dim > kMaxHeadDim)
    return b.refuse("heads of " + std::to_string(head_dim) + "; accepted are multiples of 4 up to " +
                    std::to_string(kMaxHeadDim));
  const std::int64_t heads = cols(q) / head_dim;
  return b.launch(Source::kAttention, "attention", {q.dtype, cache.dtype}, Binding::groups(heads, rows(q)), q.data,
                  cache.data, b.operand(2).data, b.operand(3).data, b.address(4), b.call().plan,
                  static_cast<cl_uint>(heads), static_cast<cl_uint>(cache.dims[2]), static_cast<cl_uint>(head_dim),
                  static_cast<cl_uint>(cache.dims[1]), static_cast<cl_uint>(attribute_int(b.node(), "window", 0)),
                  static_cast<cl_float>(attribute_double(b.node(), "scale", 1)),
                  static_cast<cl_float>(attribute_double(b.node(), "softcap", 0)),
                  static_cast<cl_uint>(b.has_operand(4)));
}

const tessera_plugin_planner kPlanner = {sizeof(tessera_plugin_planner), nullptr, plan_bytes, plan};

const Operator kOperators[] = {{"attention", bind_attention, &kPlanner}};

}  // namespace

std::span<const Operator> attention_operators() { return kOperators; }

}  // namespace opencl
