// A plugin that causes errors while requests run. Its float32 kernel of silu_mul fails for batches of five tokens. The
// kernel's planner refuses batches of six tokens. With FAILING_TOKENS=1 the kernel fails for batches of one token, so
// that the warm-up at the start fails.
#include <tessera_plugin.h>

#include <cmath>

TESSERA_PLUGIN("failing_kernel", "1.0")

namespace {

#ifndef FAILING_TOKENS
#define FAILING_TOKENS 5
#endif
constexpr int64_t kFails = FAILING_TOKENS;
constexpr size_t kRefused = 6;

struct Bound {
  const float* x;
  float* y;
  const int64_t* num_tokens;
  int64_t rows;
  int64_t cols;
};

template <class T>
T* place(tessera_plugin_address address) {
  return reinterpret_cast<T*>(static_cast<char*>(address.handle) + address.offset);
}

int32_t bind(void*, const tessera_plugin_call* call, void** bound, tessera_plugin_error* error) {
  if (call->operands[0].dtype != TESSERA_PLUGIN_F32)
    return tessera_plugin_fail(error, TESSERA_PLUGIN_UNIMPLEMENTED, "x must be float32");
  *bound = new Bound{place<const float>(call->operands[0].data), place<float>(call->results[0].data),
                     place<const int64_t>(call->plan), call->results[0].dims[0], call->results[0].dims[1]};
  return TESSERA_PLUGIN_OK;
}

int32_t enqueue(const void* bound, void*, tessera_plugin_error* error) {
  const Bound& b = *static_cast<const Bound*>(bound);
  if (*b.num_tokens == kFails)
    return tessera_plugin_fail(error, TESSERA_PLUGIN_INTERNAL, "this is a bad number of tokens");
  for (int64_t row = 0; row < b.rows; ++row) {
    const float* gate = b.x + row * 2 * b.cols;
    for (int64_t i = 0; i < b.cols; ++i)
      b.y[row * b.cols + i] = gate[i] / (1.0f + std::exp(-gate[i])) * gate[b.cols + i];
  }
  return TESSERA_PLUGIN_OK;
}

void release(void* bound) { delete static_cast<Bound*>(bound); }

int32_t bytes(void*, const tessera_plugin_node*, const tessera_plugin_limits*, size_t* needed, tessera_plugin_error*) {
  *needed = sizeof(int64_t);
  return TESSERA_PLUGIN_OK;
}

int32_t plan(void*, const tessera_plugin_node*, const tessera_plugin_limits*, const tessera_plugin_batch* batch,
             void* data, size_t* written, tessera_plugin_error* error) {
  if (batch->num_tokens == kRefused)
    return tessera_plugin_fail(error, TESSERA_PLUGIN_RESOURCE_EXHAUSTED, "six tokens are too many");
  *static_cast<int64_t*>(data) = static_cast<int64_t>(batch->num_tokens);
  *written = sizeof(int64_t);
  return TESSERA_PLUGIN_OK;
}

const tessera_plugin_planner kPlanner = {sizeof(tessera_plugin_planner), nullptr, bytes, plan};

tessera_plugin_kernel make_kernel() {
  tessera_plugin_kernel kernel{};
  kernel.size = sizeof(kernel);
  kernel.op = "silu_mul";
  kernel.device = "cpu";
  kernel.name = "failing";
  kernel.bind = bind;
  kernel.enqueue = enqueue;
  kernel.release = release;
  kernel.planner = &kPlanner;
  return kernel;
}

const tessera_plugin_kernel kKernel = make_kernel();

}  // namespace

extern "C" int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error) {
  return host->add_kernel(host, &kKernel, error);
}
