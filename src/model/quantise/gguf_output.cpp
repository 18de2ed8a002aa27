#include "tessera/model/quantise/gguf_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "tessera/model/gguf/gguf_writer.h"
#include "tessera/model/quantise/tensor_importance.h"
#include "tessera/ops/quantised/blocks/quantise.h"

namespace tessera {
namespace {

constexpr std::int64_t kQuantisationVersion = 2;  // version of the block layouts

class GgufOutput : public QuantisedOutput {
 public:
  explicit GgufOutput(GgufContent content) : content_(std::move(content)) {}

  Status plan(const GgufFileType& type, const ImportanceMatrix* importance) {
    ChosenTypes chosen = choose_types(content_, type, importance != nullptr);
    if (importance != nullptr) {
      OutputImportance of_tensors = TRY(choose_importance(content_, chosen.types, *importance));
      importance_ = std::move(of_tensors.tensors);
      std::ranges::move(of_tensors.notes, std::back_inserter(chosen.notes));
      name_importance(*importance);
    }
    notes_ = std::move(content_.notes);
    notes_.insert(notes_.end(), chosen.notes.begin(), chosen.notes.end());
    content_.metadata.set_uint32("general.quantization_version", kQuantisationVersion);
    content_.metadata.set_uint32("general.file_type", type.id);
    other_bytes_ = std::ssize(content_.metadata.bytes());
    for (std::size_t i = 0; i < content_.tensors.size(); ++i) {
      const GgufSourceTensor& tensor = content_.tensors[i];
      layouts_.push_back({.name = tensor.name, .type = chosen.types[i], .shape = tensor.shape});
      const BlockTypeInfo& from = block_type_info(tensor.stored);
      tensors_.push_back(
          {.name = tensor.name,
           .shape = tensor.shape,
           .from = tensor.format.empty() ? std::string(from.name) : tensor.format,
           .to = std::string(block_type_info(chosen.types[i]).name),
           .bytes_before = tensor.bytes > 0 ? tensor.bytes : tensor.elements() / from.elements * from.bytes,
           .bytes_after = layouts_.back().bytes()});
      other_bytes_ += 128 + std::ssize(tensor.name);  // the size of the entry in the header, and of the padding
    }
    return ok_status();
  }

  Status write(const std::string& path, const std::function<Status(std::int64_t bytes)>& on_written) const override {
    const TensorContent content{.fill = [&](std::size_t index, std::int64_t offset,
                                            std::span<std::byte> to) { return fill(index, offset, to); },
                                .on_written = on_written,
                                .before_commit = [&] { return content_.check_whole(); }};
    return write_gguf(path, content_.metadata, layouts_, content);
  }

 private:
  // Adds the metadata with which llama-quantize says which importance matrix was used.
  void name_importance(const ImportanceMatrix& matrix) {
    content_.metadata.set_string("quantize.imatrix.file", matrix.source);
    if (!matrix.datasets.empty()) content_.metadata.set_string("quantize.imatrix.dataset", matrix.datasets.front());
    content_.metadata.set_uint32("quantize.imatrix.entries_count", std::ssize(matrix.entries));
    content_.metadata.set_uint32("quantize.imatrix.chunks_count", matrix.chunk_count);
  }

  // Writes whole rows of a tensor.
  Status fill(std::size_t index, std::int64_t offset, std::span<std::byte> to) const {
    const GgufSourceTensor& tensor = content_.tensors[index];
    const GgufLayout& layout = layouts_[index];
    if (tensor.rows != nullptr && tensor.stored == layout.type) {
      std::memcpy(to.data(), tensor.rows + offset, to.size());
      return ok_status();
    }
    const std::int64_t cols = layout.shape.back();
    const std::int64_t row_bytes = layout.row_bytes();
    std::vector<float> numbers(static_cast<std::size_t>(cols));
    auto* blocks = reinterpret_cast<std::uint8_t*>(to.data());
    const std::int64_t first = offset / row_bytes;
    for (std::int64_t row = first; row < first + std::ssize(to) / row_bytes; ++row, blocks += row_bytes) {
      tensor.numbers->read(row * cols, cols, reinterpret_cast<std::byte*>(numbers.data()));
      TRY(check(tensor, layout.type, row, numbers));
      quantise(layout.type, numbers.data(), cols / block_type_info(layout.type).elements, blocks,
               importance_.empty() ? nullptr : importance_[index].of_row(row));
    }
    return ok_status();
  }

  Status check(const GgufSourceTensor& tensor, BlockType type, std::int64_t row,
               const std::vector<float>& numbers) const {
    const bool wide = type == BlockType::kF32 || type == BlockType::kBF16;
    const float most = wide ? std::numeric_limits<float>::max() : kMostQuantised;
    float greatest = 0;
    bool finite = true;
    for (const float number : numbers) {
      greatest = std::max(greatest, std::abs(number));
      finite = finite && std::isfinite(number);
    }
    if (finite && greatest <= most) return ok_status();
    const auto found = std::ranges::find_if(numbers, [&](float x) { return !(std::abs(x) <= most); });
    const std::int64_t element = row * std::ssize(numbers) + (found - numbers.begin());
    return invalid_argument(fmt::format("{}: tensor {}: element {} is {}; accepted for {}: magnitudes up to {:.6g}",
                                        content_.source, tensor.name, element, *found, block_type_info(type).name,
                                        most));
  }

  GgufContent content_;
  std::vector<GgufLayout> layouts_;
  std::vector<TensorImportance> importance_;  // [tensors]; empty without an importance matrix
};

}  // namespace

Result<std::unique_ptr<QuantisedOutput>> make_gguf_output(GgufContent content, const GgufFileType& type,
                                                          const ImportanceMatrix* importance) {
  auto output = std::make_unique<GgufOutput>(std::move(content));
  TRY(output->plan(type, importance));
  return std::unique_ptr<QuantisedOutput>(std::move(output));
}

}  // namespace tessera
