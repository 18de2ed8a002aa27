#include "tessera/model/weights/tensor_writer.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "tessera/device/cpu/parallel.h"

namespace tessera {
namespace {

// The part of a tensor that a thread fills and writes at a time.
struct Piece {
  std::size_t tensor = 0;
  std::int64_t first = 0;  // offset of the first byte in the tensor
  std::int64_t bytes = 0;
  std::int64_t at = 0;  // offset of the first byte in the file
};

std::vector<Piece> pieces_of(std::span<const PlacedTensor> tensors, std::int64_t piece_bytes) {
  std::vector<Piece> pieces;
  for (const PlacedTensor& tensor : tensors) {
    const std::int64_t most = std::max(piece_bytes / tensor.unit, std::int64_t{1}) * tensor.unit;
    for (std::int64_t first = 0; first < tensor.bytes; first += most)
      pieces.push_back({tensor.index, first, std::min(most, tensor.bytes - first), tensor.at + first});
  }
  return pieces;
}

}  // namespace

Status write_tensor_data(std::span<const PlacedTensor> tensors, std::int64_t piece_bytes, const TensorContent& content,
                         ReplacementFile& file) {
  const std::vector<Piece> pieces = pieces_of(tensors, piece_bytes);
  std::int64_t largest = 0;
  for (const Piece& piece : pieces) largest = std::max(largest, piece.bytes);
  const auto workers = std::min(static_cast<std::size_t>(worker_threads()), pieces.size());
  std::vector<std::vector<std::byte>> buffers(workers, std::vector<std::byte>(static_cast<std::size_t>(largest)));
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  Status failed;
  const auto write = [&](const Piece& piece, std::span<std::byte> buffer) -> Status {
    TRY(content.fill(piece.tensor, piece.first, buffer));
    TRY(file.write(piece.at, buffer));
    const std::lock_guard lock(mutex);
    return content.on_written ? content.on_written(piece.bytes) : ok_status();
  };
  parallel_for_dynamic(static_cast<std::int64_t>(workers), [&](std::int64_t worker) {
    std::vector<std::byte>& buffer = buffers[static_cast<std::size_t>(worker)];
    for (std::size_t i = next++; i < pieces.size(); i = next++) {
      const Status status = write(pieces[i], std::span(buffer).first(static_cast<std::size_t>(pieces[i].bytes)));
      if (status.ok()) continue;
      next = pieces.size();
      const std::lock_guard lock(mutex);
      if (failed.ok()) failed = status;
    }
  });
  TRY(failed);
  return content.before_commit ? content.before_commit() : ok_status();
}

}  // namespace tessera
