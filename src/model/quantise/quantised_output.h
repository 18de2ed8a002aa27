// Plans how to write a quantised copy of a checkpoint. A plan says what the output will contain, and can write the
// output.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/family.h"

namespace tessera {

struct ImportanceMatrix;

// Describes how one tensor of the source is written.
struct QuantisedTensor {
  std::string name;  // the name in the output
  std::vector<std::int64_t> shape;
  std::string from;  // the type in the source: "BF16", "Q6_K"
  std::string to;
  std::int64_t bytes_before = 0;
  std::int64_t bytes_after = 0;
};

class QuantisedOutput {
 public:
  virtual ~QuantisedOutput() = default;

  const std::vector<QuantisedTensor>& tensors() const { return tensors_; }
  // Returns notes for the user about tensors that are left out or get another type than requested, with the reasons.
  const std::vector<std::string>& notes() const { return notes_; }
  std::int64_t bytes_before() const;  // bytes of all tensors
  std::int64_t bytes_after() const;
  std::int64_t elements() const;
  // Returns an estimate of the size of the files that write() makes. The estimate may be slightly too large.
  std::int64_t file_bytes() const { return bytes_after() + other_bytes_; }

  // Writes the output to `path`. `path` is a file, which is replaced, or a folder, which must be empty or not exist.
  // The output has a temporary name beside `path` until it is complete, and is removed after an error. After each
  // piece, `on_written` is called with the number of data bytes in the piece. If `on_written` returns an error, the
  // write ends. Needs a few MiB of memory for each OpenMP thread. Returns invalid_argument for infinities, NaN and
  // numbers outside of the type's range. The message names the tensor and the element. Returns data_loss if the source
  // was truncated meanwhile.
  virtual Status write(const std::string& path, const std::function<Status(std::int64_t bytes)>& on_written) const = 0;

 protected:
  std::vector<QuantisedTensor> tensors_;
  std::vector<std::string> notes_;
  std::int64_t other_bytes_ = 0;  // headers, tokenizers and config
};

// Says whether an output of some type is a GGUF file or a folder of safetensors.
enum class OutputForm : std::uint8_t { kGguf, kSafetensors };

// Returns the form of a type; nothing for an unknown type. The names of GGUF types may be in any case.
std::optional<OutputForm> output_form(std::string_view type);
// Returns "F32, F16, …, MXFP4_MOE, fp8, …", for messages.
std::string output_type_names();

// Opens the checkpoint and decides for each tensor how it is written, without writing anything. `model_path` is as
// described in model_path.h. Returns the errors of reading the checkpoint's config, tensors and tokenizer. Returns
// unimplemented if the output's format cannot hold a part of the model. The message names the part. `importance` is an
// importance matrix or null. If it is not null, also returns the errors of choose_importance() and
// choose_folder_importance(), and invalid_argument for a type that uses no importances. Precondition: output_form(type)
// is not empty.
Result<std::unique_ptr<QuantisedOutput>> plan_quantised(const std::string& model_path, std::string_view type,
                                                        const ir::OpTable& ops, const FamilyRegistry& families,
                                                        const ImportanceMatrix* importance = nullptr);

}  // namespace tessera
