// Finds how each linear of a checkpoint is stored, from its quantisation settings and from the types of its tensors.
//
//   WeightFormats formats = TRY(WeightFormats::read(config_json, nullptr, "m/config.json"));
//   WeightFormat q = TRY(formats.of("model.layers.0.self_attn.q_proj", stored_type_of));
//
// The settings alone cannot be trusted: published lists of unquantised modules name modules that are quantised, or miss
// some that are not. Therefore a tensor's own type, if it is known, decides.
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

// Returns the type of a stored tensor, or nothing if the checkpoint has none of this name.
using StoredTypeOf = std::function<std::optional<StoredDtype>(std::string_view tensor)>;

// Returns whether the checkpoint has the matrix of the linear `module`, in whatever format.
bool has_matrix(std::string_view module, const StoredTypeOf& stored);

// The type in which the authors mean keys and values to be kept. It is no demand: more bits are as good.
struct KvCacheFormat {
  std::string dtype;    // "fp8", "int8", "nvfp4"
  bool scales = false;  // the checkpoint may have "k_scale" and "v_scale"
  friend bool operator==(const KvCacheFormat&, const KvCacheFormat&) = default;
};

// Immutable, thread-safe, and cheap to copy.
class WeightFormats {
 public:
  WeightFormats() = default;  // every weight is plain

  // Reads the "quantization_config" or "compression_config" of `config`, the whole config.json; in a nested model it
  // may stand in "text_config". `beside` is the content of hf_quant_config.json (ModelOpt) or quantize_config.json
  // (GPTQ), or null. `file` names config.json in messages. unimplemented for a format that this engine does not read;
  // invalid_argument for what is wrong or contradicts itself.
  static Result<WeightFormats> read(const Json& config, const Json* beside, const std::string& file);

  // Returns formats by which unquantised linears are quantised while they are read. Precondition: method() is empty.
  WeightFormats quantised_at_start(StartFormat format) const;
  std::optional<StartFormat> at_start() const { return at_start_; }

  // Returns whether some linear may be quantised.
  bool any() const;
  // Returns the format's name in other engines' option --quantization: "fp8", "fbgemm_fp8", "compressed-tensors",
  // "modelopt", "gptq", "awq", "quark"; empty if every weight is plain.
  std::string method() const;
  // Returns the StartFormat to which the settings' formats belong; nothing if they belong to none, or to several.
  std::optional<StartFormat> kind() const;
  std::optional<KvCacheFormat> kv_cache() const;

  // Returns how the linear `module` ("model.layers.0.self_attn.q_proj") is stored. Without `stored` the settings
  // decide, and with it they decide only for a module that has no tensor. Otherwise a plain "weight" without scales is
  // plain, and one that is stored as the settings describe is quantised, whatever lists of modules say. A module whose
  // tensors contradict each other or the settings is invalid_argument; the message names tensor, type and what is
  // accepted.
  Result<WeightFormat> of(std::string_view module, const StoredTypeOf& stored = {}) const;

 private:
  std::string file_;
  std::shared_ptr<const FormatRules> rules_;  // null: every weight is plain
  std::optional<StartFormat> at_start_;
};

}  // namespace tessera
