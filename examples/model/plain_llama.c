/* A plugin with a model family defined by its own graph: PlainLlamaForCausalLM is Llama as graph text. The config's
 * fields and the tensors have Llama's names. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera_plugin.h>

TESSERA_PLUGIN("plain_llama", "1.0")

enum { kLongestLine = 512 };

static void say(const tessera_plugin_text* out, const char* format, ...) {
  char line[kLongestLine];
  va_list values;
  va_start(values, format);
  const int bytes = vsnprintf(line, sizeof(line), format, values);
  va_end(values);
  out->append(out, line, (size_t)bytes < sizeof(line) ? (size_t)bytes : sizeof(line) - 1);
}

/* Returns the value of "field" in the object itself, not in a nested object; null if the object lacks the field. The
 * text is JSON on one line with a space behind each colon, as the engine passes it. */
static const char* member(const char* json, const char* field) {
  const size_t bytes = strlen(field);
  int depth = 0;
  for (const char* at = json; *at != 0; ++at) {
    depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
    if (*at != '"') continue;
    const char* const word = ++at;
    for (; *at != 0 && *at != '"'; ++at)
      if (*at == '\\' && at[1] != 0) ++at;
    if (*at == 0) return NULL;
    if (depth == 1 && at[1] == ':' && (size_t)(at - word) == bytes && strncmp(word, field, bytes) == 0) return at + 2 + strspn(at + 2, " ");
  }
  return NULL;
}

/* Treats a value that is not a number, such as null, as absent. */
static double number(const char* json, const char* field, double absent) {
  const char* const found = member(json, field);
  return found != NULL && strchr("-0123456789", *found) != NULL ? atof(found) : absent;
}

static int is_true(const char* json, const char* field) {
  const char* const found = member(json, field);
  return found != NULL && strncmp(found, "true", 4) == 0;
}

typedef struct {
  int hidden, mlp, layers, heads, kv_heads, head_dim, vocab;
  double eps;
} llama_sizes;

static llama_sizes read_sizes(const char* json) {
  llama_sizes s;
  s.hidden = (int)number(json, "hidden_size", 0); /* the engine has checked these fields and their ranges */
  s.mlp = (int)number(json, "intermediate_size", 0);
  s.layers = (int)number(json, "num_hidden_layers", 0);
  s.heads = (int)number(json, "num_attention_heads", 0);
  s.kv_heads = (int)number(json, "num_key_value_heads", s.heads);
  s.head_dim = (int)number(json, "head_dim", s.hidden / s.heads);
  s.vocab = (int)number(json, "vocab_size", 0);
  s.eps = number(json, "rms_norm_eps", 1e-6);
  return s;
}

/* One matrix of the graph, made of tensors stacked below one another. */
typedef struct {
  const char* tensor;
  int rows;
} matrix_part;

static int32_t stack(const tessera_plugin_weights* weights, int layer, const char* name, const matrix_part* parts,
                     size_t count, int columns, tessera_plugin_error* error) {
  char weight[96];
  snprintf(weight, sizeof(weight), "model.layers.%d.%s.weight", layer, name);
  int32_t code = TESSERA_PLUGIN_OK;
  for (size_t i = 0; code == TESSERA_PLUGIN_OK && i < count; ++i) {
    char tensor[96];
    snprintf(tensor, sizeof(tensor), "model.layers.%d.%s.weight", layer, parts[i].tensor);
    const int64_t dims[] = {parts[i].rows, columns};
    const tessera_plugin_part part = {.size = sizeof(part), .tensor = tensor, .dims = dims, .rank = 2};
    code = weights->add_part(weights, weight, &part, error);
  }
  return code;
}

static int32_t graph(void* self, const tessera_plugin_model* model, const tessera_plugin_text* out,
                     const tessera_plugin_weights* weights, tessera_plugin_error* error) {
  (void)self;
  if (model->ranks > 1)
    return tessera_plugin_fail(error, TESSERA_PLUGIN_UNIMPLEMENTED, "this family runs on one rank: leave --tp-size out");
  if (is_true(model->config_json, "attention_bias") || is_true(model->config_json, "mlp_bias"))
    return tessera_plugin_fail(error, TESSERA_PLUGIN_UNIMPLEMENTED,
                               "attention_bias or mlp_bias is true; this family's matrices have no bias");
  const llama_sizes s = read_sizes(model->config_json);
  static const char* const names[] = {"f32", "f16", "bf16"};
  const char* x = names[model->dtype];
  const char* kv = names[model->kv_cache_dtype];
  const int q = s.heads * s.head_dim, k = s.kv_heads * s.head_dim;

  say(out, "graph @body {\n  group \"full\" paged layers [0");
  for (int i = 1; i < s.layers; ++i) say(out, ", %d", i);
  say(out, "]\n  input %%input_ids: i32[T]  input %%input_rows: i32[T]  input %%last_ids: i32[%d]\n",
      (int)model->max_requests);
  say(out, "  input %%embedding_rows: i32[T]  input %%embeddings: %s[%d, %d]\n", x, (int)model->max_embeddings, s.hidden);
  say(out, "  input %%slots.full: i32[T]  input %%positions: i32[T]\n");
  say(out, "  weight %%model.embed_tokens.weight: %s[%d, %d]\n", x, s.vocab, s.hidden);
  say(out, "  weight %%rope.inv_freq: f32[%d]\n", (int)model->num_inv_freq);
  for (int i = 0; i < s.layers; ++i) {
    say(out, "  weight %%model.layers.%d.input_layernorm.weight: %s[%d]\n", i, x, s.hidden);
    say(out, "  weight %%model.layers.%d.self_attn.qkv_proj.weight: %s[%d, %d]\n", i, x, q + 2 * k, s.hidden);
    say(out, "  weight %%model.layers.%d.self_attn.o_proj.weight: %s[%d, %d]\n", i, x, s.hidden, q);
    say(out, "  weight %%model.layers.%d.post_attention_layernorm.weight: %s[%d]\n", i, x, s.hidden);
    say(out, "  weight %%model.layers.%d.mlp.gate_up_proj.weight: %s[%d, %d]\n", i, x, 2 * s.mlp, s.hidden);
    say(out, "  weight %%model.layers.%d.mlp.down_proj.weight: %s[%d, %d]\n", i, x, s.hidden, s.mlp);
    for (const char* cache = "kv"; *cache != 0; ++cache)
      say(out, "  state %%%c_cache.%d: %s[P, %d, %d, %d]\n", *cache, i, kv, (int)model->page_size, s.kv_heads, s.head_dim);
  }
  say(out, "  weight %%model.norm.weight: %s[%d]\n", x, s.hidden);

  /* The types of results follow from those of the operands. */
  say(out, "  %%ids = resolve_ids(%%input_ids, %%input_rows, %%last_ids)\n");
  say(out, "  %%h = embedding(%%ids, %%model.embed_tokens.weight, %%embedding_rows, %%embeddings)\n");
  say(out, "  %%rope = rotary_table(%%positions, %%rope.inv_freq) {scale = %.17e}\n", model->rope_scale);
  say(out, "  %%x.0 = rms_norm(%%h, %%model.layers.0.input_layernorm.weight) {eps = %.17e}\n", s.eps);
  for (int i = 0; i < s.layers; ++i) {
    char last[32], next[64];
    snprintf(last, sizeof(last), i == 0 ? "h" : "h.%d", i);
    snprintf(next, sizeof(next), i + 1 < s.layers ? "model.layers.%d.input_layernorm.weight" : "model.norm.weight", i + 1);
    say(out, "  %%qkv.%d = linear(%%x.%d, %%model.layers.%d.self_attn.qkv_proj.weight) {bias = false}\n", i, i, i);
    say(out, "  %%q.%d = qkv_rope_store(%%qkv.%d, %%rope, %%slots.full, mut %%k_cache.%d, mut %%v_cache.%d) {heads = %d}\n",
        i, i, i, i, s.heads);
    say(out, "  %%a.%d = empty_like(%%q.%d)\n", i, i);
    say(out, "  attention(%%q.%d, %%k_cache.%d, %%v_cache.%d, mut %%a.%d) {group = 0, scale = %.17e, window = 0}\n", i, i, i, i,
        1.0 / sqrt(s.head_dim));
    say(out, "  %%o.%d = linear(%%a.%d, %%model.layers.%d.self_attn.o_proj.weight) {bias = false}\n", i, i, i);
    say(out, "  %%m.%d = add(%%o.%d, %%%s)\n", i, i, last);
    say(out, "  %%y.%d = rms_norm(%%m.%d, %%model.layers.%d.post_attention_layernorm.weight) {eps = %.17e}\n", i, i, i, s.eps);
    say(out, "  %%g.%d = linear(%%y.%d, %%model.layers.%d.mlp.gate_up_proj.weight) {bias = false}\n", i, i, i);
    say(out, "  %%s.%d = silu_mul(%%g.%d)\n", i, i);
    say(out, "  %%d.%d = linear(%%s.%d, %%model.layers.%d.mlp.down_proj.weight) {bias = false}\n", i, i, i);
    say(out, "  %%h.%d = add(%%d.%d, %%m.%d)\n", i + 1, i, i);
    say(out, "  %%x.%d = rms_norm(%%h.%d, %%%s) {eps = %.17e}\n", i + 1, i + 1, next, s.eps);
  }
  say(out, "  return %%x.%d\n}\n", s.layers);

  int32_t code = weights->add_constant(weights, "rope.inv_freq", model->inv_freq, model->num_inv_freq, error);
  const matrix_part qkv[] = {{"self_attn.q_proj", q}, {"self_attn.k_proj", k}, {"self_attn.v_proj", k}};
  const matrix_part gate_up[] = {{"mlp.gate_proj", s.mlp}, {"mlp.up_proj", s.mlp}};
  for (int i = 0; code == TESSERA_PLUGIN_OK && i < s.layers; ++i) {
    code = stack(weights, i, "self_attn.qkv_proj", qkv, 3, s.hidden, error);
    if (code == TESSERA_PLUGIN_OK) code = stack(weights, i, "mlp.gate_up_proj", gate_up, 2, s.hidden, error);
  }
  return code; /* every other weight is the tensor with the weight's name */
}

static const tessera_plugin_family kFamily = {
    .size = sizeof(tessera_plugin_family), .architecture = "PlainLlamaForCausalLM", .graph = graph};

int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error) {
  return host->add_family(host, &kFamily, error);
}
