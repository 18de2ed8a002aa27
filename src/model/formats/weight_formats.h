// Finds the format of each linear in a checkpoint, from its quantisation settings and the types of its tensors.
//
//   WeightFormats formats = TRY(WeightFormats::read(config_json, nullptr, "m/config.json"));
//   WeightFormat q = TRY(formats.of("model.layers.0.self_attn.q_proj", stored_type_of));
//
// Settings alone are unreliable. Published lists of unquantised modules name modules that are in fact quantised, and
// omit modules that are not quantised. So the types of the stored tensors decide, if they are known.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/model/formats/start_format.h"
#include "tessera/model/formats/weight_format.h"
#include "tessera/model/weights/stored_dtype.h"

namespace tessera {

struct FormatRules;

// A function that returns the type of a stored tensor, or nothing if the checkpoint has no tensor of this name.
using StoredTypeOf = std::function<std::optional<StoredDtype>(std::string_view tensor)>;

// Returns whether the checkpoint has the matrix of the linear `module`, in any format.
bool has_matrix(std::string_view module, const StoredTypeOf& stored);

// The type that the checkpoint's authors suggest for the KV cache. A cache with more bits than this type is acceptable
// too.
struct KvCacheFormat {
  std::string dtype;    // "fp8", "int8", "nvfp4"
  bool scales = false;  // the checkpoint may have "k_scale" and "v_scale"
  friend bool operator==(const KvCacheFormat&, const KvCacheFormat&) = default;
};

// Immutable, thread-safe, and cheap to copy.
class WeightFormats {
 public:
  WeightFormats() = default;  // every weight is unquantised

  // Reads "quantization_config" or "compression_config" from `config`, the whole config.json. In a nested config these
  // members may be inside "text_config". `beside` is the content of hf_quant_config.json (ModelOpt) or
  // quantize_config.json (GPTQ), or null. `file` names config.json in messages. Returns unimplemented for an
  // unsupported format. Returns invalid_argument for settings that are wrong or contradict each other.
  static Result<WeightFormats> read(const Json& config, const Json* beside, const std::string& file);

  // Returns a copy of these formats in which unquantised linears are quantised to `format` while they are read. Linears
  // that are stored quantised keep their formats.
  WeightFormats quantised_at_start(StartFormat format) const;
  std::optional<StartFormat> at_start() const { return at_start_; }

  // Returns whether any linear may be quantised.
  bool any() const;
  // Returns the name of the quantisation method, as the option --quantization of other engines spells it: "fp8",
  // "fbgemm_fp8", "compressed-tensors", "modelopt", "gptq", "awq", "quark". Empty if every weight is unquantised.
  std::string method() const;
  // Returns the StartFormat to which all formats of the settings correspond; nothing if there is no such StartFormat.
  std::optional<StartFormat> kind() const;
  std::optional<KvCacheFormat> kv_cache() const;

  // Returns the format of the linear `module` ("model.layers.0.self_attn.q_proj"). If `stored` is empty or shows no
  // tensor of the module, the settings decide. Otherwise the module's tensors decide, even against the lists of
  // unquantised modules. A "weight" of F32, F16 or BF16 without scales is unquantised. Tensors that fit the format in
  // the settings are quantised. Returns invalid_argument if a module's tensors contradict each other or the settings.
  // The message names the tensor, its type and what is accepted.
  Result<WeightFormat> of(std::string_view module, const StoredTypeOf& stored = {}) const;

 private:
  std::string file_;
  std::shared_ptr<const FormatRules> rules_;  // null if every weight is unquantised
  std::optional<StartFormat> at_start_;
};

}  // namespace tessera
