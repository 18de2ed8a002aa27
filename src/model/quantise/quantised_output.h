// A checkpoint that is to be written with smaller values: what it will hold, and the way to write it.
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

// What becomes of one tensor of the source.
struct QuantisedTensor {
  std::string name;  // as the output has it
  std::vector<std::int64_t> shape;
  std::string from;  // the types: "BF16", "Q6_K"
  std::string to;
  std::int64_t bytes_before = 0;
  std::int64_t bytes_after = 0;
};

class QuantisedOutput {
 public:
  virtual ~QuantisedOutput() = default;

  const std::vector<QuantisedTensor>& tensors() const { return tensors_; }
  // What a person should know: tensors that are left out or get another type than was asked for, and why.
  const std::vector<std::string>& notes() const { return notes_; }
  std::int64_t bytes_before() const;  // bytes of all tensors
  std::int64_t bytes_after() const;
  std::int64_t elements() const;
  // Returns the bytes of the files that write() makes, or a few more.
  std::int64_t file_bytes() const { return bytes_after() + other_bytes_; }

  // Writes the output to `path`: a file, which is replaced, or a folder, which must not exist or be empty. All of it
  // has a temporary name beside `path` until it is complete, and an error leaves nothing. `on_written` receives the
  // number of further bytes of data; its error ends the write. Holds a few MiB for each of OpenMP's threads.
  // invalid_argument for infinities, NaN and numbers that the type cannot hold; the message names tensor and element.
  // data_loss if the source became shorter meanwhile.
  virtual Status write(const std::string& path, const std::function<Status(std::int64_t bytes)>& on_written) const = 0;

 protected:
  std::vector<QuantisedTensor> tensors_;
  std::vector<std::string> notes_;
  std::int64_t other_bytes_ = 0;  // headers, tokenizers and config
};

// Whether a type's output is a GGUF file or a folder of safetensors.
enum class OutputForm : std::uint8_t { kGguf, kSafetensors };

// Returns the form of a type; nothing for an unknown one. Types of GGUF files may be written in any case.
std::optional<OutputForm> output_form(std::string_view type);
// Returns "F32, F16, …, Q4_K_M, …; fp8, …", for messages.
std::string output_type_names();

// Opens the checkpoint and decides about each tensor; writes nothing. `model_path` is as model_path.h says. Errors are
// those of reading the checkpoint's config, tensors and tokenizer; unimplemented, by name, for what the output cannot
// hold. Precondition: output_form(type).
Result<std::unique_ptr<QuantisedOutput>> plan_quantised(const std::string& model_path, std::string_view type,
                                                        const ir::OpTable& ops, const FamilyRegistry& families);

}  // namespace tessera
