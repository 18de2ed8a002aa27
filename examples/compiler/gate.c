/* A plugin with a compiler. The compiler prints the pieces that it gets. It joins linear and silu_mul, the gate of a
 * feed-forward layer, into a kernel of its own, which never stores the matmul's result. It leaves all other operators
 * to the engine's kernels. A program's handle lists the joined nodes, and a later process loads the handle. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tessera_plugin.h>

TESSERA_PLUGIN("gate_compiler", "1.0")

static const tessera_plugin_host* engine; /* for its worker threads */

/* ---- The kernel: y[t, i] = silu(x[t] · w[i]) · (x[t] · w[cols + i]); x f32[T, D], w f32[2·cols, D] ---- */

typedef struct gate_call {
  const float* x;
  const float* w;
  float* y;
  int64_t rows;
  int64_t depth;
  int64_t cols;
} gate_call;

static void* place(tessera_plugin_address address) { return (char*)address.handle + address.offset; }

static int32_t bind(void* self, const tessera_plugin_call* call, void** bound, tessera_plugin_error* error) {
  (void)self;
  gate_call* made = malloc(sizeof(*made));
  if (made == NULL) return tessera_plugin_fail(error, TESSERA_PLUGIN_RESOURCE_EXHAUSTED, "out of memory");
  made->x = place(call->operands[0].data);
  made->w = place(call->operands[1].data);
  made->y = place(call->results[0].data);
  made->rows = call->operands[0].dims[0];
  made->depth = call->operands[0].dims[1];
  made->cols = call->results[0].dims[1];
  *bound = made;
  return TESSERA_PLUGIN_OK;
}

static float dot(const float* a, const float* b, int64_t n) {
  float sums[8] = {0}; /* eight sums, so that the compiler can vectorise */
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; ++k) sums[k] += a[i + k] * b[i + k];
  float sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (int k = 0; k < 8; ++k) sum += sums[k];
  return sum;
}

static void columns(void* context, int64_t begin, int64_t end) {
  const gate_call* c = context;
  for (int64_t i = begin; i < end; ++i)
    for (int64_t row = 0; row < c->rows; ++row) {
      const float* x = c->x + row * c->depth;
      const float gate = dot(x, c->w + i * c->depth, c->depth);
      const float up = dot(x, c->w + (c->cols + i) * c->depth, c->depth);
      c->y[row * c->cols + i] = gate / (1.0f + expf(-gate)) * up;
    }
}

static int32_t enqueue(const void* bound, void* stream, tessera_plugin_error* error) {
  (void)stream;
  (void)error;
  const gate_call* call = bound;
  engine->parallel_for(call->cols, 16, columns, (void*)call);
  return TESSERA_PLUGIN_OK;
}

static const tessera_plugin_kernel kGate = {
    .size = sizeof(tessera_plugin_kernel),
    .op = "gate",
    .device = "cpu",
    .name = "gate_c",
    .bind = bind,
    .enqueue = enqueue,
    .release = free,
};

/* ---- The compiler ---- */

static int has_bias(const tessera_plugin_piece_node* node) { return node->num_operands != 2; }

static int is_used_once(const tessera_plugin_piece* piece, int32_t value) {
  size_t uses = (size_t)(piece->values[value].is_output != 0);
  for (size_t n = 0; n < piece->num_nodes; ++n)
    for (size_t i = 0; i < piece->nodes[n].num_operands; ++i) uses += piece->nodes[n].operands[i] == value;
  return uses == 1;
}

/* Returns whether node n is a linear in float32 whose result is read only by node n + 1, and node n + 1 is silu_mul. */
static int is_group(const tessera_plugin_piece* piece, size_t n) {
  if (n + 1 >= piece->num_nodes || strcmp(piece->device, "cpu") != 0) return 0;
  const tessera_plugin_piece_node* linear = &piece->nodes[n];
  const tessera_plugin_piece_node* silu = &piece->nodes[n + 1];
  if (strcmp(linear->op, "linear") != 0 || strcmp(silu->op, "silu_mul") != 0 || has_bias(linear)) return 0;
  if (silu->operands[0] != linear->results[0] || !is_used_once(piece, linear->results[0])) return 0;
  return piece->values[linear->operands[0]].type.dtype == TESSERA_PLUGIN_F32 &&
         piece->values[linear->operands[0]].type.rank == 2;
}

static int32_t add_group(const tessera_plugin_piece* piece, const tessera_plugin_program* program, size_t n,
                         tessera_plugin_error* error) {
  const tessera_plugin_piece_node* linear = &piece->nodes[n];
  const tessera_plugin_piece_node gate = {.op = "gate",
                                          .operands = linear->operands,
                                          .num_operands = 2,
                                          .results = piece->nodes[n + 1].results,
                                          .num_results = 1};
  return program->add_instruction(program, &gate, &kGate, "y[t, i] = silu(x[t] . w[i]) * (x[t] . w[cols + i])", error);
}

static void write_text(const tessera_plugin_text* out, const char* text) { out->append(out, text, strlen(text)); }

static void hash(void* self, const tessera_plugin_text* out) {
  (void)self;
  write_text(out, "gate 1"); /* raise the number with every change to the result of compile() */
}

static int32_t compile(void* self, const tessera_plugin_piece* piece, const tessera_plugin_program* program,
                       const tessera_plugin_text* handle, tessera_plugin_error* error) {
  (void)self;
  printf("gate: compiles\n%s\n", piece->text);
  fflush(stdout);
  write_text(handle, "[");
  const char* comma = "";
  for (size_t n = 0; n < piece->num_nodes; ++n) {
    int32_t code;
    if (is_group(piece, n)) {
      char number[32];
      snprintf(number, sizeof(number), "%s%zu", comma, n);
      write_text(handle, number);
      comma = ",";
      code = add_group(piece, program, n++, error);
    } else {
      code = program->keep_node(program, n, error);
    }
    if (code != TESSERA_PLUGIN_OK) return code;
  }
  write_text(handle, "]");
  return TESSERA_PLUGIN_OK;
}

/* Checks each number, because the handle comes from disk. */
static int32_t load(void* self, const tessera_plugin_piece* piece, const char* handle,
                    const tessera_plugin_program* program, tessera_plugin_error* error) {
  (void)self;
  const char* at = handle + 1; /* behind "[" */
  for (size_t n = 0; n < piece->num_nodes; ++n) {
    char* end;
    const unsigned long long group = strtoull(at, &end, 10);
    int32_t code;
    if (end != at && group == n) {
      if (!is_group(piece, n)) return tessera_plugin_fail(error, TESSERA_PLUGIN_DATA_LOSS, "there is no group");
      at = end + (*end == ',');
      code = add_group(piece, program, n++, error);
    } else {
      code = program->keep_node(program, n, error);
    }
    if (code != TESSERA_PLUGIN_OK) return code;
  }
  if (*at != ']') return tessera_plugin_fail(error, TESSERA_PLUGIN_DATA_LOSS, "the groups are not those of this piece");
  printf("gate: loaded %zu operators\n", piece->num_nodes);
  fflush(stdout);
  return TESSERA_PLUGIN_OK;
}

static const tessera_plugin_compiler kCompiler = {
    .size = sizeof(tessera_plugin_compiler),
    .name = "gate",
    .hash = hash,
    .compile = compile,
    .load = load,
};

int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error) {
  engine = host;
  return host->add_compiler(host, &kCompiler, error);
}
