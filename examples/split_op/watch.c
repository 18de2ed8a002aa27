/* A plugin with an operator that runs on the host in every forward and so cannot be in a graph: it logs how large
 * the hidden states of the batch's tokens became. A pass puts it at the end of the model's body; the forward is
 * cut there, and everything before it is captured as usual. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tessera_plugin.h>

TESSERA_PLUGIN("watch", "1.0")

static const tessera_plugin_host* engine; /* for its log */

/* ---- The operator: watch(x X[T, D]) → X[T, D], a copy of x; X is float32 or bfloat16 ---- */

static const tessera_plugin_operand kOperands[] = {{"x", 0, 0}};

static int32_t infer(void* self, const tessera_plugin_node* node, tessera_plugin_type* results, size_t* num_results,
                     tessera_plugin_error* error) {
  (void)self;
  const int32_t dtype = node->operands[0].dtype;
  if ((dtype != TESSERA_PLUGIN_F32 && dtype != TESSERA_PLUGIN_BF16) || node->operands[0].rank != 2)
    return tessera_plugin_fail(error, TESSERA_PLUGIN_INVALID_ARGUMENT, "x must be f32[T, D] or bf16[T, D]");
  results[0] = node->operands[0];
  *num_results = 1;
  return TESSERA_PLUGIN_OK;
}

static const tessera_plugin_operator kWatch = {
    .size = sizeof(tessera_plugin_operator),
    .name = "watch",
    .summary = "a copy of x, whose largest value goes to the log: [T, D] -> [T, D]",
    .operands = kOperands,
    .num_operands = 1,
    .infer = infer,
    .row_independent = 0, /* the kernel must not read padding rows, so it has a planner */
    .capturable = 0,
    .split_by_default = 1,
};

/* ---- The planner: computes how many rows are tokens; the others are padding ---- */

static int32_t plan_bytes(void* self, const tessera_plugin_node* node, const tessera_plugin_limits* limits,
                          size_t* bytes, tessera_plugin_error* error) {
  (void)self, (void)node, (void)limits, (void)error;
  *bytes = sizeof(int64_t);
  return TESSERA_PLUGIN_OK;
}

static int32_t plan(void* self, const tessera_plugin_node* node, const tessera_plugin_limits* limits,
                    const tessera_plugin_batch* batch, void* data, size_t* written, tessera_plugin_error* error) {
  (void)self, (void)node, (void)limits, (void)error;
  *(int64_t*)data = (int64_t)batch->num_tokens;
  *written = sizeof(int64_t);
  return TESSERA_PLUGIN_OK;
}

static const tessera_plugin_planner kPlanner = {
    .size = sizeof(tessera_plugin_planner), .bytes = plan_bytes, .plan = plan};

/* ---- The kernel ---- */

typedef struct watch_call {
  const void* x;
  void* y;
  const int64_t* num_tokens; /* of the current batch; written before each forward */
  int64_t rows;
  int64_t cols;
  int32_t is_bf16; /* otherwise float32 */
} watch_call;

static void* place(tessera_plugin_address address) { return (char*)address.handle + address.offset; }

static int32_t bind(void* self, const tessera_plugin_call* call, void** bound, tessera_plugin_error* error) {
  (void)self;
  watch_call* made = malloc(sizeof(*made));
  if (made == NULL) return tessera_plugin_fail(error, TESSERA_PLUGIN_RESOURCE_EXHAUSTED, "out of memory");
  made->x = place(call->operands[0].data);
  made->y = place(call->results[0].data);
  made->num_tokens = place(call->plan);
  made->rows = call->operands[0].dims[0];
  made->cols = call->operands[0].dims[1];
  made->is_bf16 = call->operands[0].dtype == TESSERA_PLUGIN_BF16;
  *bound = made;
  return TESSERA_PLUGIN_OK;
}

static float value_at(const watch_call* c, int64_t i) {
  if (!c->is_bf16) return ((const float*)c->x)[i];
  const uint32_t wide = (uint32_t)((const uint16_t*)c->x)[i] << 16;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

static int32_t enqueue(const void* bound, void* stream, tessera_plugin_error* error) {
  (void)stream;
  const watch_call* c = bound;
  float largest = 0;
  for (int64_t i = 0; i < *c->num_tokens * c->cols; ++i) largest = fmaxf(largest, fabsf(value_at(c, i)));
  if (!isfinite(largest)) return tessera_plugin_fail(error, TESSERA_PLUGIN_INTERNAL, "a hidden state is not finite");
  memcpy(c->y, c->x, (size_t)(c->rows * c->cols) * (c->is_bf16 ? sizeof(uint16_t) : sizeof(float)));
  char line[128];
  snprintf(line, sizeof(line), "watch: %lld tokens, largest hidden value %.3f", (long long)*c->num_tokens, largest);
  engine->log(1, line);
  return TESSERA_PLUGIN_OK;
}

static const tessera_plugin_kernel kKernel = {
    .size = sizeof(tessera_plugin_kernel),
    .op = "watch",
    .device = "cpu",
    .name = "watch_c",
    .bind = bind,
    .enqueue = enqueue,
    .release = free,
    .planner = &kPlanner,
};

/* ---- The pass: renames the value %hidden to %unwatched; %hidden becomes the watched copy of %unwatched ---- */

static int32_t run_pass(void* self, const char* graph, const tessera_plugin_text* out, tessera_plugin_error* error) {
  (void)self;
  static const char kDefined[] = "%hidden: ";
  static const char kReturned[] = "return %hidden\n";
  const char* defined = strstr(graph, kDefined);
  const char* returned = strstr(graph, kReturned);
  if (strncmp(graph, "graph @body ", 12) != 0) return TESSERA_PLUGIN_OK; /* the head, or the sampler */
  if (defined == NULL || returned == NULL)
    return tessera_plugin_fail(error, TESSERA_PLUGIN_UNIMPLEMENTED, "the body does not return %hidden");
  static const char kNew[] = "%unwatched: ";
  static const char kWatched[] = "%hidden = watch(%unwatched)\n  ";
  out->append(out, graph, (size_t)(defined - graph));
  out->append(out, kNew, sizeof(kNew) - 1);
  out->append(out, defined + sizeof(kDefined) - 1, (size_t)(returned - defined) - (sizeof(kDefined) - 1));
  out->append(out, kWatched, sizeof(kWatched) - 1);
  out->append(out, returned, strlen(returned));
  return TESSERA_PLUGIN_OK;
}

static const tessera_plugin_pass kPass = {
    .size = sizeof(tessera_plugin_pass),
    .name = "watch_hidden",
    .summary = "the body's result goes through watch",
    .version = 1,
    .run = run_pass,
};

int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error) {
  engine = host;
  int32_t code = host->add_operator(host, &kWatch, error);
  if (code == TESSERA_PLUGIN_OK) code = host->add_kernel(host, &kKernel, error);
  if (code == TESSERA_PLUGIN_OK) code = host->add_pass(host, &kPass, error);
  return code;
}
