/* A plugin with a model family: StorytellerForCausalLM has Qwen3's layers, with other names of fields and tensors. */
#include <stdio.h>
#include <stdlib.h>
#include <tessera_plugin.h>

TESSERA_PLUGIN("storyteller", "1.0")

static void write_text(const tessera_plugin_text* out, const char* text) { out->append(out, text, strlen(text)); }

/* Adds Qwen3's names in front of the existing members: "width": 256 is also read as "hidden_size". */
static int32_t config(void* self, const char* json, const tessera_plugin_text* out, tessera_plugin_error* error) {
  (void)self;
  const char* width = strstr(json, "\"width\":");
  if (width == NULL) return tessera_plugin_fail(error, TESSERA_PLUGIN_INVALID_ARGUMENT, "field \"width\" is missing");
  char field[64];
  snprintf(field, sizeof(field), "{\"hidden_size\": %d,", atoi(width + strlen("\"width\":")));
  write_text(out, field);
  write_text(out, json + 1); /* behind "{" */
  return TESSERA_PLUGIN_OK;
}

/* "model.layers.0.…" is stored as "story.layers.0.…". */
static void tensor(void* self, const char* name, const tessera_plugin_text* out) {
  (void)self;
  if (strncmp(name, "model.", 6) != 0) return;
  write_text(out, "story.");
  write_text(out, name + 6);
}

static const tessera_plugin_family kFamily = {.size = sizeof(tessera_plugin_family),
                                              .architecture = "StorytellerForCausalLM",
                                              .base = "Qwen3ForCausalLM",
                                              .config = config,
                                              .tensor = tensor};

int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error) {
  return host->add_family(host, &kFamily, error);
}
