#include "tessera/model/gguf/gguf_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/base/lfs_pointer.h"
#include "tessera/model/weights/stored_tensor.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and are used as they lie");

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 20;
// The minimum sizes of a metadata pair (8 bytes of key length, 4 of type, 1 of value) and of a tensor's entry (8 bytes
// of name length, 4 of rank, 4 of type, 8 of offset). If the header states so many pairs or tensors that they do not
// fit into the rest of the file even at these sizes, the file is refused.
constexpr std::uint64_t kLeastPairBytes = 13;
constexpr std::uint64_t kLeastTensorBytes = 24;

std::string shown_name(std::string_view text) { return clip_text(Json(text).dump()); }

// The byte range of a tensor in the data section.
struct Place {
  std::uint64_t begin;
  std::uint64_t end;
  const std::string* name;
};

}  // namespace

// Parses the header from front to back. Checks every read against the end of the file. The functions take what they
// read as `what`, a function that returns its name. It is called only for an error, because a name is costly to write.
class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes) { file_.path_ = path; }

  Result<GgufFile> parse() {
    TRY(read_start());
    for (std::uint64_t i = 0; i < pairs_; ++i) TRY(read_pair(i));
    TRY(read_alignment());
    TRY(read_tensors());
    return std::move(file_);
  }

 private:
  Status wrong(const std::string& what, const std::string& value, const std::string& accepted) const {
    return data_loss(fmt::format("{}: {} is {}; accepted: {}", file_.path_, what, value, accepted));
  }
  Status lacking(const std::string& what, const std::string& value, const std::string& accepted) const {
    return unimplemented(fmt::format("{}: {} is {}; accepted: {}", file_.path_, what, value, accepted));
  }
  Status ends(const std::string& what) const {
    return data_loss(
        fmt::format("{}: the file ends after {} bytes, within {}; is it truncated?", file_.path_, bytes_.size(), what));
  }

  std::uint64_t rest() const { return bytes_.size() - at_; }

  template <class T, class What>
  Result<T> read(const What& what) {
    if (rest() < sizeof(T)) return ends(what());
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  // Checks a count that the file states against the rest of the file, of which each counted thing takes at least
  // `least_bytes`, and against the limit `most`.
  template <class What>
  Status check_count(const What& what, std::uint64_t count, std::uint64_t least_bytes, std::uint64_t most) const {
    const std::uint64_t fitting = rest() / least_bytes;
    if (count <= std::min(fitting, most)) return ok_status();
    return wrong(what(), fmt::format("{}", count),
                 fitting < most ? fmt::format("at most {}, for the {} bytes that follow", fitting, rest())
                                : fmt::format("at most {}", most));
  }

  // Reads a string that must be UTF-8 and at most `most` bytes long.
  template <class What>
  Result<std::string_view> read_string(const What& what, std::uint64_t most) {
    const auto length = TRY(read<std::uint64_t>(what));
    if (length > most)
      return wrong("the length of " + what(), fmt::format("{}", length),
                   fmt::format("at most {}", std::min<std::uint64_t>(most, rest())));
    if (length > rest()) return ends(fmt::format("{}, which has {} bytes", what(), length));
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<std::size_t>(length));
    if (const std::size_t fault = find_invalid_utf8(text); fault != std::string_view::npos)
      return wrong(what(), fmt::format("no UTF-8: byte {} of {} begins no character", fault, length), "UTF-8");
    at_ += static_cast<std::size_t>(length);
    return text;
  }

  Status read_start() {
    const std::string_view head(reinterpret_cast<const char*>(bytes_.data()), std::min<std::size_t>(bytes_.size(), 64));
    if (is_lfs_pointer(head)) return lfs_pointer_error(file_.path_);
    if (head.size() < kMagic.size()) return ends("the first four bytes");
    if (!head.starts_with(kMagic))
      return data_loss(
          fmt::format("{}: the file begins with {}; accepted: \"GGUF\" (the older formats GGML, GGMF and "
                      "GGJT are not read)",
                      file_.path_, first_bytes(head)));
    at_ = kMagic.size();
    const auto version = TRY(read<std::uint32_t>([] { return "the version"; }));
    // Versions are small numbers. If the low 16 bits are zero, the file has the other byte order.
    if ((version & 0xffffu) == 0 && version != 0)
      return lacking("the byte order", "big-endian", "little-endian, which files for nearly all machines have");
    if (version != 2 && version != 3) return lacking("the version", fmt::format("{}", version), "2 and 3");
    tensors_ = TRY(read<std::uint64_t>([] { return "the number of tensors"; }));
    pairs_ = TRY(read<std::uint64_t>([] { return "the number of metadata pairs"; }));
    TRY(check_count([] { return "the number of metadata pairs"; }, pairs_, kLeastPairBytes, GgufFile::kMaxPairs));
    TRY(check_count([] { return "the number of tensors"; }, tensors_, kLeastTensorBytes, GgufFile::kMaxTensors));
    file_.keys_.reserve(static_cast<std::size_t>(pairs_));
    return ok_status();
  }

  static std::string first_bytes(std::string_view head) {
    std::string text;
    for (const char c : head.substr(0, kMagic.size()))
      text += fmt::format("{}{:02x}", text.empty() ? "" : " ", static_cast<unsigned char>(c));
    return "the bytes " + text;
  }

  template <class What>
  Result<GgufType> read_type(const What& what) {
    const auto number = TRY(read<std::uint32_t>(what));
    if (number >= kGgufTypes) return wrong(what(), fmt::format("{}", number), "0 to 12");
    return static_cast<GgufType>(number);
  }

  Status read_pair(std::uint64_t index) {
    const auto of_key = [&] { return fmt::format("metadata key {}", index); };
    const std::string_view key = TRY(read_string(of_key, GgufFile::kMaxNameBytes));
    const auto what = [&] { return "the value of " + shown_name(key); };
    const auto length = [&] { return "the length of " + what(); };
    GgufType type = TRY(read_type([&] { return "the type of " + what(); }));
    std::optional<std::uint64_t> count;
    if (type == GgufType::kArray) {
      type = TRY(read_type([&] { return "the type of the elements of " + what(); }));
      if (type == GgufType::kArray)
        return lacking(what(), "an array of arrays", "a value, or an array of plain values");
      count = TRY(read<std::uint64_t>(length));
      const std::uint64_t least = type == GgufType::kString ? sizeof(std::uint64_t) : gguf_type_bytes(type);
      TRY(check_count(length, *count, least, GgufFile::kMaxElements));
    }
    const std::size_t begin = at_;
    TRY(skip_values(what, type, count.value_or(1)));
    file_.keys_.push_back(key);
    const bool added = file_.values_.emplace(key, GgufValue(type, count, bytes_.subspan(begin, at_ - begin))).second;
    return added ? ok_status() : wrong("metadata key " + shown_name(key), "there twice", "each key once");
  }

  template <class What>
  Status skip_values(const What& what, GgufType type, std::uint64_t count) {
    if (type == GgufType::kString) {
      for (std::uint64_t i = 0; i < count; ++i) TRY(read_string(what, std::min(rest(), GgufFile::kMaxTextBytes)));
      return ok_status();
    }
    const std::uint64_t bytes = gguf_type_bytes(type) * count;  // cannot overflow, because the count is checked above
    if (bytes > rest()) return ends(what());
    for (std::uint64_t i = 0; type == GgufType::kBool && i < count; ++i)
      if (const auto value = std::to_integer<int>(bytes_[at_ + i]); value > 1)
        return wrong(what(), fmt::format("{}", value), "0 or 1 for BOOL");
    at_ += static_cast<std::size_t>(bytes);
    return ok_status();
  }

  Status read_alignment() {
    const GgufValue* value = file_.find(kAlignmentKey);
    if (value == nullptr) return ok_status();
    const std::optional<std::int64_t> given = value->integer();
    if (!given || *given < 1 || !std::has_single_bit(static_cast<std::uint64_t>(*given)) ||
        static_cast<std::uint64_t>(*given) > kMaxAlignment)
      return wrong(std::string(kAlignmentKey), value->shown(), fmt::format("a power of two up to {}", kMaxAlignment));
    alignment_ = static_cast<std::uint64_t>(*given);
    return ok_status();
  }

  Status read_tensors() {
    if (tensors_ > rest() / kLeastTensorBytes) return ends(fmt::format("the entries of {} tensors", tensors_));
    file_.tensors_.reserve(static_cast<std::size_t>(tensors_));
    std::vector<std::uint64_t> offsets;
    std::vector<std::uint64_t> sizes;
    for (std::uint64_t i = 0; i < tensors_; ++i) TRY(read_tensor(i, offsets, sizes));
    TRY(sort_names());
    return place_tensors(offsets, sizes);
  }

  Status read_tensor(std::uint64_t index, std::vector<std::uint64_t>& offsets, std::vector<std::uint64_t>& sizes) {
    GgufTensor tensor;
    const auto of_name = [&] { return fmt::format("the name of tensor {}", index); };
    tensor.name = TRY(read_string(of_name, GgufFile::kMaxNameBytes));
    const auto what = [&] { return "tensor " + shown_name(tensor.name); };
    const auto rank = TRY(read<std::uint32_t>(what));
    if (rank < 1 || rank > GgufFile::kMaxRank)
      return wrong(what() + ": the number of dimensions", fmt::format("{}", rank),
                   fmt::format("1 to {}", GgufFile::kMaxRank));
    std::int64_t elements = 1;
    for (std::uint32_t dim = 0; dim < rank; ++dim) {
      const auto size = TRY(read<std::uint64_t>(what));
      // With at most 2^59 elements of at most 8 bytes, no tensor size overflows.
      if (size < 1 || size > (std::uint64_t{1} << 59) ||
          __builtin_mul_overflow(elements, static_cast<std::int64_t>(size), &elements) ||
          elements > (std::int64_t{1} << 59))
        return wrong(fmt::format("{}: dimension {}", what(), dim), fmt::format("{}", size),
                     "sizes of at least 1 whose product is at most 2^59");
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
    }
    const auto number = TRY(read<std::uint32_t>(what));
    const BlockTypeInfo* type = find_block_type(number);
    if (type == nullptr) {
      std::vector<std::string> known;
      for (const BlockTypeInfo& info : kBlockTypes)
        known.push_back(fmt::format("{} ({})", static_cast<int>(info.type), info.name));
      return lacking(what() + ": the type", fmt::format("{}", number), fmt::format("{}", fmt::join(known, ", ")));
    }
    tensor.type = type->type;
    if (tensor.shape.back() % type->elements != 0)
      return wrong(what() + ": the length of its rows", fmt::format("{}", tensor.shape.back()),
                   fmt::format("a multiple of {} for type {}", type->elements, type->name));
    offsets.push_back(TRY(read<std::uint64_t>(what)));
    sizes.push_back(static_cast<std::uint64_t>(elements / type->elements * type->bytes));
    file_.tensors_.push_back(std::move(tensor));
    return ok_status();
  }

  Status sort_names() {
    std::vector<std::size_t>& order = file_.by_name_;
    const auto name_of = [this](std::size_t i) -> std::string_view { return file_.tensors_[i].name; };
    order.resize(file_.tensors_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, name_of);
    const auto twice = std::ranges::adjacent_find(order, {}, name_of);
    if (twice == order.end()) return ok_status();
    return wrong(fmt::format("tensor {}", shown_name(name_of(*twice))), "there twice", "each name once");
  }

  // Assigns each tensor its bytes, and checks that no two tensors overlap.
  Status place_tensors(const std::vector<std::uint64_t>& offsets, const std::vector<std::uint64_t>& sizes) {
    const std::uint64_t data_begin = (at_ + alignment_ - 1) / alignment_ * alignment_;
    if (tensors_ > 0 && data_begin > bytes_.size()) return ends("the padding before the tensors' data");
    const std::uint64_t available = tensors_ > 0 ? bytes_.size() - data_begin : 0;
    std::vector<Place> places;
    for (std::size_t i = 0; i < file_.tensors_.size(); ++i) {
      GgufTensor& tensor = file_.tensors_[i];
      const auto what = [&] { return "tensor " + shown_name(tensor.name); };
      if (offsets[i] % alignment_ != 0)
        return wrong(what() + ": the offset", fmt::format("{}", offsets[i]),
                     fmt::format("a multiple of the alignment {}", alignment_));
      if (offsets[i] > available || sizes[i] > available - offsets[i])
        return wrong(what() + ": its data", fmt::format("{} bytes from {} on", sizes[i], offsets[i]),
                     fmt::format("a range within the {} bytes of data in the file; is it truncated?", available));
      tensor.data =
          bytes_.subspan(static_cast<std::size_t>(data_begin + offsets[i]), static_cast<std::size_t>(sizes[i]));
      places.push_back({offsets[i], offsets[i] + sizes[i], &tensor.name});
    }
    std::ranges::sort(places, {}, &Place::begin);
    for (std::size_t i = 1; i < places.size(); ++i)
      if (places[i].begin < places[i - 1].end)
        return wrong(
            fmt::format("tensor {}: the offset", shown_name(*places[i].name)), fmt::format("{}", places[i].begin),
            fmt::format("{} or more, where tensor {} ends", places[i - 1].end, shown_name(*places[i - 1].name)));
    return ok_status();
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::uint64_t pairs_ = 0;
  std::uint64_t tensors_ = 0;
  std::uint64_t alignment_ = kDefaultAlignment;
  GgufFile file_;
};

Result<GgufFile> GgufFile::open(const std::string& path) {
  std::shared_ptr<const MappedFile> mapping = TRY(MappedFile::open(path));
  Result<GgufFile> file = parse(mapping->bytes(), path);
  // This check comes before an error of `file` is returned, because lost bytes can be the cause of that error.
  TRY(mapping->check_whole());
  if (file.ok()) file->mapping_ = std::move(mapping);
  return file;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, const std::string& path) {
  return GgufParser(bytes, path).parse();
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto name_of = [this](std::size_t i) -> std::string_view { return tensors_[i].name; };
  const auto found = std::ranges::lower_bound(by_name_, name, {}, name_of);
  return found != by_name_.end() && name_of(*found) == name ? &tensors_[*found] : nullptr;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

}  // namespace tessera
