// A plugin that lets a test choose the tokens that a model generates. The environment variable TESSERA_TEST_SCRIPT
// lists ids ("5,17,3"). The plugin's CPU kernel of `sample` gives each request these ids one after another, and then
// repeats the last id. A row gets the id whose index is the row's position minus TESSERA_TEST_SCRIPT_FROM.
#include <tessera_plugin.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

TESSERA_PLUGIN("scripted_sampler", "1.0")

namespace {

constexpr size_t kPosition = 7;  // index of the positions among the operands of sample

std::vector<int32_t> script;
int64_t first = 0;

struct Bound {
  const int32_t* position;
  int32_t* ids;
  int64_t rows;
};

char* place(tessera_plugin_address a) { return static_cast<char*>(a.handle) + a.offset; }

int32_t bind(void*, const tessera_plugin_call* call, void** bound, tessera_plugin_error*) {
  *bound = new Bound{.position = reinterpret_cast<const int32_t*>(place(call->operands[kPosition].data)),
                     .ids = reinterpret_cast<int32_t*>(place(call->results[0].data)),
                     .rows = call->results[0].dims[0]};
  return TESSERA_PLUGIN_OK;
}

int32_t enqueue(const void* bound, void*, tessera_plugin_error*) {
  const auto& b = *static_cast<const Bound*>(bound);
  for (int64_t row = 0; row < b.rows; ++row) {
    const int64_t at = std::clamp<int64_t>(b.position[row] - first, 0, static_cast<int64_t>(script.size()) - 1);
    b.ids[row] = script[static_cast<size_t>(at)];
  }
  return TESSERA_PLUGIN_OK;
}

const tessera_plugin_kernel kKernel = [] {
  tessera_plugin_kernel kernel{};
  kernel.size = sizeof(kernel);
  kernel.op = "sample";
  kernel.device = "cpu";
  kernel.name = "scripted";
  kernel.bind = bind;
  kernel.enqueue = enqueue;
  kernel.release = [](void* bound) { delete static_cast<Bound*>(bound); };
  return kernel;
}();

}  // namespace

extern "C" int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error) {
  const char* ids = std::getenv("TESSERA_TEST_SCRIPT");
  const char* from = std::getenv("TESSERA_TEST_SCRIPT_FROM");
  if (ids == nullptr) return tessera_plugin_fail(error, TESSERA_PLUGIN_NOT_FOUND, "TESSERA_TEST_SCRIPT is not set");
  std::istringstream words(ids);
  for (std::string id; std::getline(words, id, ',');) script.push_back(std::atoi(id.c_str()));
  if (script.empty())
    return tessera_plugin_fail(error, TESSERA_PLUGIN_INVALID_ARGUMENT, "TESSERA_TEST_SCRIPT is empty");
  first = from == nullptr ? 0 : std::atoll(from);
  return host->add_kernel(host, &kKernel, error);
}
