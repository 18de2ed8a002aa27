// A plugin with several families. The graph() of each family does one thing wrong. A family's architecture has the
// name "Faulty" followed by the fault.
#include <tessera_plugin.h>

#include <stdexcept>
#include <string>

TESSERA_PLUGIN("faulty_family", "1.0")

namespace {

const char* const kFaults[] = {"Error", "Throws", "Nothing",    "Words", "NoPart", "NoTensor", "Rank",
                               "Size",  "Huge",   "Transposed", "Twice", "Slice",  "Ignores"};
constexpr size_t kNumFaults = sizeof(kFaults) / sizeof(*kFaults);

int32_t graph(void* self, const tessera_plugin_model*, const tessera_plugin_text* out,
              const tessera_plugin_weights* weights, tessera_plugin_error* error) {
  const std::string fault = static_cast<const char*>(self);
  if (fault == "Error") return tessera_plugin_fail(error, TESSERA_PLUGIN_UNIMPLEMENTED, "the family is on holiday");
  if (fault == "Throws") throw std::runtime_error("out of the blue");
  if (fault == "Nothing") return TESSERA_PLUGIN_OK;
  if (fault == "Words") {
    const std::string text = "graph @body {\n  of my own making\n}";
    out->append(out, text.data(), text.size());
    return TESSERA_PLUGIN_OK;
  }
  const float one = 1;
  if (fault == "Ignores") {
    (void)weights->add_constant(weights, "w", nullptr, 0, error);
    return TESSERA_PLUGIN_OK;
  }
  int64_t dims[TESSERA_PLUGIN_MAX_RANK] = {2, 2, 2, 2, 2};
  tessera_plugin_part part{};
  part.size = sizeof(part);
  part.tensor = "t";
  part.dims = dims;
  part.rank = 2;
  if (fault == "NoPart") return weights->add_part(weights, "w", nullptr, error);
  if (fault == "NoTensor") part.tensor = nullptr;
  if (fault == "Rank") part.rank = 9;
  if (fault == "Size") dims[1] = 0;
  if (fault == "Huge") dims[1] = int64_t{1} << 40;
  if (fault == "Slice") part.slice_dim = 7, part.slice_size = 1;
  if (fault == "Transposed") part.rank = 1, part.transposed = 1;
  if (fault == "Twice") (void)weights->add_constant(weights, "w", &one, 1, error);
  return weights->add_part(weights, "w", &part, error);
}

}  // namespace

extern "C" int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error) {
  static std::string names[kNumFaults];
  for (size_t i = 0; i < kNumFaults; ++i) {
    names[i] = std::string("Faulty") + kFaults[i];
    tessera_plugin_family family{};
    family.size = sizeof(family);
    family.self = const_cast<char*>(kFaults[i]);
    family.architecture = names[i].c_str();
    family.graph = graph;
    const int32_t code = host->add_family(host, &family, error);
    if (code != TESSERA_PLUGIN_OK) return code;
  }
  return TESSERA_PLUGIN_OK;
}
