#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <unordered_set>

#include "tessera/base/json.h"
#include "tessera/model/safetensors.h"

namespace tessera {
namespace {

Status check(const std::string& path, std::span<const StoredTensor> tensors) {
  std::unordered_set<std::string_view> names;
  for (const StoredTensor& tensor : tensors) {
    const std::string what = fmt::format("writing {}: tensor {}", path, Json(tensor.name).dump());
    if (tensor.name == "__metadata__") return invalid_argument(what + ": the name is reserved by the format");
    if (!names.insert(tensor.name).second) return invalid_argument(what + " is given twice");
    if (tensor.shape.size() > SafetensorsFile::kMaxRank) {
      return invalid_argument(fmt::format("{}: shape is {}; accepted: at most {} dimensions", what,
                                          shape_text(tensor.shape), SafetensorsFile::kMaxRank));
    }
    const std::optional<std::int64_t> bytes = tensor_bytes(tensor.shape, tensor.dtype);
    if (!bytes || static_cast<std::uint64_t>(*bytes) != tensor.data.size()) {
      return invalid_argument(fmt::format("{} has {} bytes of data; accepted: what dtype {} and shape {} need", what,
                                          tensor.data.size(), stored_dtype_name(tensor.dtype),
                                          shape_text(tensor.shape)));
    }
  }
  return ok_status();
}

// Length and header, padded with spaces to a multiple of 8.
std::string header_bytes(std::span<const StoredTensor* const> tensors,
                         const std::map<std::string, std::string>& metadata) {
  Json::Object members;
  if (!metadata.empty()) {
    Json::Object strings;
    for (const auto& [key, value] : metadata) strings.emplace_back(key, Json(value));
    members.emplace_back("__metadata__", Json::object(std::move(strings)));
  }
  std::size_t offset = 0;
  for (const StoredTensor* tensor : tensors) {
    Json::Array shape;
    for (std::int64_t size : tensor->shape) shape.emplace_back(size);
    Json::Array range;
    range.emplace_back(offset);
    offset += tensor->data.size();
    range.emplace_back(offset);
    Json::Object entry;
    entry.emplace_back("dtype", Json(stored_dtype_name(tensor->dtype)));
    entry.emplace_back("shape", Json(std::move(shape)));
    entry.emplace_back("data_offsets", Json(std::move(range)));
    members.emplace_back(tensor->name, Json::object(std::move(entry)));
  }
  std::string text = Json::object(std::move(members)).dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + text;
}

// A temporary file beside `path`, removed by the destructor unless commit() renamed it to `path`.
class ReplacementFile {
 public:
  explicit ReplacementFile(const std::string& path) : path_(path) {
    static std::atomic<unsigned> counter{0};
    temporary_ = fmt::format("{}.tmp-{}-{}", path, ::getpid(), counter.fetch_add(1));
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0) status_ = failed("create");
  }
  ~ReplacementFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;

  Status write(const void* data, std::size_t size) {
    TRY(status_);
    const auto* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(fd_, at, std::min<std::size_t>(size, 1u << 30));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return status_ = failed("write");
      at += written;
      size -= static_cast<std::size_t>(written);
    }
    return ok_status();
  }

  Status commit() {
    TRY(status_);
    if (::fsync(fd_) != 0) return status_ = failed("write");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return status_ = failed("rename");
    ::close(fd_);
    fd_ = -1;
    return ok_status();
  }

 private:
  Status failed(const char* what) const {
    return data_loss(fmt::format("cannot {} {} for {}: {}", what, temporary_, path_, std::strerror(errno)));
  }
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  Status status_;
};

}  // namespace

Status write_safetensors(const std::string& path, std::span<const StoredTensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
  TRY(check(path, tensors));
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [](const StoredTensor* t) { return stored_dtype_bytes(t->dtype); });
  ReplacementFile file(path);
  const std::string header = header_bytes(order, metadata);
  TRY(file.write(header.data(), header.size()));
  for (const StoredTensor* tensor : order) TRY(file.write(tensor->data.data(), tensor->data.size()));
  return file.commit();
}

}  // namespace tessera
