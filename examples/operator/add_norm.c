/* A plugin with one fused operator: its declaration, its native form, and kernels for the CPU and, if the build has
 * nvcc, for CUDA. The native form consists of the engine's operators that the fused operator replaces. Here it is
 * add_rms_norm alone. A native form may also have several operators. */
#include "add_norm.h"

#include <math.h>
#include <stdlib.h>
#include <tessera_plugin.h>

TESSERA_PLUGIN("add_norm", "1.0")

static const tessera_plugin_host* engine; /* for its worker threads */

/* ---- The declaration ---- */

static const tessera_plugin_operand kOperands[] = {{"x", 0, 0}, {"residual", 0, 0}, {"w", 0, 0}};
static const tessera_plugin_attribute_decl kAttributes[] = {{"eps", TESSERA_PLUGIN_DOUBLE, 1}};

static int same_type(const tessera_plugin_type* a, const tessera_plugin_type* b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return 0;
  for (int32_t i = 0; i < a->rank; ++i)
    if (memcmp(&a->dims[i], &b->dims[i], sizeof(a->dims[i])) != 0) return 0;
  return 1;
}

static int32_t infer(void* self, const tessera_plugin_node* node, tessera_plugin_type* results, size_t* num_results,
                     tessera_plugin_error* error) {
  (void)self;
  const tessera_plugin_type* x = &node->operands[0];
  const tessera_plugin_type* w = &node->operands[2];
  if (x->rank < 1 || (x->dtype != TESSERA_PLUGIN_F32 && x->dtype != TESSERA_PLUGIN_BF16))
    return tessera_plugin_fail(error, TESSERA_PLUGIN_INVALID_ARGUMENT, "x must be f32[*, D] or bf16[*, D]");
  if (!same_type(x, &node->operands[1]))
    return tessera_plugin_fail(error, TESSERA_PLUGIN_INVALID_ARGUMENT, "x and residual must have one type");
  if (w->dtype != x->dtype || w->rank != 1 || memcmp(&w->dims[0], &x->dims[x->rank - 1], sizeof(w->dims[0])) != 0)
    return tessera_plugin_fail(error, TESSERA_PLUGIN_INVALID_ARGUMENT, "w must be [D], of x's dtype");
  results[0] = results[1] = *x;
  *num_results = 2;
  return TESSERA_PLUGIN_OK;
}

/* Types for which the native form is checked when the plugin is loaded: f32[T, 8], f32[T, 8], f32[8]. */
#define T_BY_8                   \
  {                              \
    TESSERA_PLUGIN_F32, 2, {     \
      {0, {1}, 1}, { 8, {0}, 1 } \
    }                            \
  }
static const tessera_plugin_type kExample[] = {T_BY_8, T_BY_8, {TESSERA_PLUGIN_F32, 1, {{8, {0}, 1}}}};
static const tessera_plugin_attribute kExampleAttributes[] = {
    {.name = "eps", .kind = TESSERA_PLUGIN_DOUBLE, .number = 1e-6}};

static const tessera_plugin_operator kAddNorm = {
    .size = sizeof(tessera_plugin_operator),
    .name = "my_add_norm",
    .summary = "sum = x + residual; y = rms_norm(sum) * w: [*, D], [*, D], [D] -> [*, D], [*, D]",
    .operands = kOperands,
    .num_operands = 3,
    .attributes = kAttributes,
    .num_attributes = 1,
    .infer = infer,
    .row_independent = 1,
    .capturable = 1,
    .native_form = "%y, %sum = add_rms_norm(%x, %residual, %w) {eps = $eps}  return %y, %sum",
    .example = kExample,
    .example_attributes = kExampleAttributes,
    .num_example_attributes = 1,
    .fuses = 1,
};

/* ---- Binding, the same for both devices ---- */

static void* place(tessera_plugin_address address) { return (char*)address.handle + address.offset; }

static int32_t bind(void* self, const tessera_plugin_call* call, void** bound, tessera_plugin_error* error) {
  (void)self;
  add_norm_call* made = malloc(sizeof(*made));
  if (made == NULL) return tessera_plugin_fail(error, TESSERA_PLUGIN_RESOURCE_EXHAUSTED, "out of memory");
  const tessera_plugin_tensor* x = &call->operands[0];
  made->x = place(x->data);
  made->residual = place(call->operands[1].data);
  made->w = place(call->operands[2].data);
  made->y = place(call->results[0].data);
  made->sum = place(call->results[1].data);
  made->cols = x->dims[x->rank - 1];
  made->rows = 1;
  for (int32_t i = 0; i + 1 < x->rank; ++i) made->rows *= x->dims[i];
  made->eps = (float)tessera_plugin_find_attribute(call->node, "eps")->number;
  made->is_bf16 = x->dtype == TESSERA_PLUGIN_BF16;
  *bound = made;
  return TESSERA_PLUGIN_OK;
}

/* ---- The CPU's kernel ---- */

static float from_bf16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

static uint16_t to_bf16(float value) {
  uint32_t wide;
  memcpy(&wide, &value, sizeof(wide));
  if (value != value) return (uint16_t)(wide >> 16 | 0x40); /* NaN stays NaN */
  return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

static float load(const void* from, int64_t i, int32_t is_bf16) {
  return is_bf16 ? from_bf16(((const uint16_t*)from)[i]) : ((const float*)from)[i];
}

static void store(void* to, int64_t i, int32_t is_bf16, float value) {
  if (is_bf16)
    ((uint16_t*)to)[i] = to_bf16(value);
  else
    ((float*)to)[i] = value;
}

static void add_norm_rows(void* context, int64_t begin, int64_t end) {
  const add_norm_call* c = context;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * c->cols;
    float squares = 0;
    for (int64_t i = at; i < at + c->cols; ++i) {
      store(c->sum, i, c->is_bf16, load(c->x, i, c->is_bf16) + load(c->residual, i, c->is_bf16));
      const float sum = load(c->sum, i, c->is_bf16); /* rounded as stored */
      squares += sum * sum;
    }
    const float scale = 1.0f / sqrtf(squares / (float)c->cols + c->eps);
    for (int64_t i = 0; i < c->cols; ++i) {
      store(c->y, at + i, c->is_bf16, load(c->sum, at + i, c->is_bf16) * scale);
      store(c->y, at + i, c->is_bf16, load(c->y, at + i, c->is_bf16) * load(c->w, i, c->is_bf16));
    }
  }
}

static int32_t enqueue_on_cpu(const void* bound, void* stream, tessera_plugin_error* error) {
  (void)stream;
  (void)error;
  const add_norm_call* call = bound;
  engine->parallel_for(call->rows, 16, add_norm_rows, (void*)call);
  return TESSERA_PLUGIN_OK;
}

static const tessera_plugin_kernel kOnCpu = {
    .size = sizeof(tessera_plugin_kernel),
    .op = "my_add_norm",
    .device = "cpu",
    .name = "my_add_norm_c",
    .bind = bind,
    .enqueue = enqueue_on_cpu,
    .release = free,
};

/* ---- CUDA's kernel ---- */

#ifdef HAS_CUDA
static int32_t enqueue_on_cuda(const void* bound, void* stream, tessera_plugin_error* error) {
  if (add_norm_launch_cuda(bound, stream) == 0) return TESSERA_PLUGIN_OK;
  return tessera_plugin_fail(error, TESSERA_PLUGIN_INTERNAL, "the launch failed");
}

static const tessera_plugin_kernel kOnCuda = {
    .size = sizeof(tessera_plugin_kernel),
    .op = "my_add_norm",
    .device = "cuda",
    .name = "my_add_norm_cuda",
    .bind = bind,
    .enqueue = enqueue_on_cuda,
    .release = free,
};
#endif

/* ---- The functions that the engine calls ---- */

int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error) {
  engine = host;
  int32_t code = host->add_operator(host, &kAddNorm, error);
  if (code == TESSERA_PLUGIN_OK) code = host->add_kernel(host, &kOnCpu, error);
#ifdef HAS_CUDA
  if (code == TESSERA_PLUGIN_OK) code = host->add_kernel(host, &kOnCuda, error);
#endif
  return code;
}
