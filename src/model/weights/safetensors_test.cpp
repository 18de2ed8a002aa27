// Catches: a read outside of the file because of a wrong header; two tensors that share bytes; a truncated file that is
// accepted; written files that other programs cannot read.
#include "tessera/model/weights/safetensors.h"

#include <sys/stat.h>

#include "tessera/base/json.h"
#include "tessera/model/test_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::as_bytes;
using test::expect_error;
using test::safetensors_bytes;
using ::testing::ElementsAre;

constexpr const char* kTwo = R"({"__metadata__": {"format": "pt"},
    "b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [4, 16]},
    "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}})";

TEST(Safetensors, GivesViewsInFileOrder) {
  const std::string bytes = safetensors_bytes(kTwo, 16);
  Result<SafetensorsFile> parsed = SafetensorsFile::parse(as_bytes(bytes), "x");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const StoredTensor* before = parsed->find("b");
  const SafetensorsFile file = *std::move(parsed);
  EXPECT_EQ(file.find("b"), before) << "views survive a move";
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_TRUE(file.tensors()[0].shape.empty());
  EXPECT_EQ(file.tensors()[0].num_elements(), 1);
  const StoredTensor& b = *file.find("b");
  EXPECT_EQ(b.dtype, StoredDtype::kBF16);
  EXPECT_THAT(b.shape, ElementsAre(2, 3));
  EXPECT_EQ(b.data.size(), 12u);
  EXPECT_EQ(b.data[0], std::byte{4});
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  const std::pair<const char*, std::size_t> cases[] = {
      {"{}", 0},
      {"{}      ", 0},
      {R"({"empty": {"dtype": "I64", "shape": [0, 7], "data_offsets": [0, 0]}, "one": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})",
       1},
      {R"({"odd": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}} )", 8},  // the header has an odd length
  };
  for (const auto& [header, size] : cases) {
    const std::string bytes = safetensors_bytes(header, size);
    const Result<SafetensorsFile> file = SafetensorsFile::parse(as_bytes(bytes), "x");
    EXPECT_TRUE(file.ok()) << header << ": " << file.status().message();
  }
}

TEST(Safetensors, RefusesWrongHeaders) {
  struct Case {
    const char* header;
    std::size_t data;
    std::vector<std::string> parts;
  };
  const Case cases[] = {
      {"", 8, {"begins with nothing"}},
      {"[]", 0, {"begins with", "["}},
      {" {}", 0, {"begins with \" \""}},
      {"{", 0, {"header", "JSON"}},
      {"{}x", 0, {"header", "JSON"}},
      {R"({"a": 1})", 0, {"\"a\"", "entry is 1"}},
      {R"({"a": {}})", 0, {"\"a\"", "dtype is missing"}},
      {R"({"a": {"dtype": "F7", "shape": [], "data_offsets": [0, 4]}})", 4, {"\"a\"", "dtype is \"F7\"", "BF16"}},
      {R"({"a": {"dtype": 4, "shape": [], "data_offsets": [0, 4]}})", 4, {"\"a\"", "dtype is 4"}},
      {R"({"a": {"dtype": "F32", "data_offsets": [0, 4]}})", 4, {"\"a\"", "shape is missing"}},
      {R"({"a": {"dtype": "F32", "shape": 4, "data_offsets": [0, 4]}})", 4, {"\"a\"", "shape is 4"}},
      {R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", 4, {"\"a\"", "shape is [-1]", "negative"}},
      {R"({"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}})", 4, {"\"a\"", "shape is [1.0]"}},
      {R"({"a": {"dtype": "U8", "shape": [1,1,1,1,1,1,1,1,4], "data_offsets": [0, 4]}})",
       4,
       {"\"a\"", "shape is a list of 9"}},
      {R"({"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 4]}})",
       4,
       {"\"a\"", "[4294967296, 4294967296]", "63 bits"}},
      {R"({"a": {"dtype": "F64", "shape": [4611686018427387904], "data_offsets": [0, 4]}})", 4, {"\"a\"", "63 bits"}},
      {R"({"a": {"dtype": "F32", "shape": [18446744073709551617], "data_offsets": [0, 4]}})", 4, {"\"a\"", "shape"}},
      {R"({"a": {"dtype": "F32", "shape": [1]}})", 4, {"\"a\"", "data_offsets is missing"}},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4]}})", 4, {"\"a\"", "data_offsets is [4]"}},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})",
       4,
       {"\"a\"", "data_offsets is [4, 0]", "begin <= end"}},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}})", 4, {"\"a\"", "data_offsets is [-4, 0]"}},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})",
       4,
       {"\"a\"", "data_offsets is [0, 8]", "<= 4"}},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [18446744073709551612, 18446744073709551615]}})",
       4,
       {"\"a\"", "data_offsets"}},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})",
       4,
       {"\"a\"", "data_offsets is [0, 4]", "8 bytes", "F32", "[2]"}},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
       8,
       {"twice", "\"a\""}},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "b": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]}})",
       6,
       {"\"b\"", "[2, 6]", "begin = 4", "\"a\"", "overlap"}},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
       4,
       {"\"b\"", "[0, 4]", "overlap"}},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "b": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}})",
       12,
       {"\"b\"", "[8, 12]", "holes"}},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})", 8, {"\"a\"", "begin = 0"}},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 9, {"9 bytes of data", "4"}},
      {"{}", 3, {"3 bytes of data"}},
      {R"({"__metadata__": {"format": 1}})", 0, {"__metadata__", "1"}},
      {R"({"__metadata__": "pt"})", 0, {"__metadata__", "\"pt\""}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.header);
    const std::string bytes = safetensors_bytes(c.header, c.data);
    std::vector<std::string> parts = c.parts;
    parts.push_back("dir/x.safetensors");
    expect_error(SafetensorsFile::parse(as_bytes(bytes), "dir/x.safetensors"), StatusCode::kDataLoss, parts);
  }
}

TEST(Safetensors, RefusesWrongLengths) {
  const auto with_length = [](std::uint64_t length) {
    std::string bytes = safetensors_bytes("{}", 0);
    std::memcpy(bytes.data(), &length, sizeof length);
    return bytes;
  };
  for (std::uint64_t length : {std::uint64_t{3}, std::uint64_t{100'000'001}, ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    const std::string bytes = with_length(length);
    expect_error(SafetensorsFile::parse(as_bytes(bytes), "x"), StatusCode::kDataLoss,
                 {"x: header length is " + std::to_string(length), "at most 2"});
  }
  expect_error(SafetensorsFile::parse({}, "x"), StatusCode::kDataLoss, {"x", "0 bytes", "at least 8"});
  // The header exceeds the format's limit although the file is long enough for it. A sparse file takes no space on
  // disk.
  const test::ScratchDir dir;
  const std::string path = dir.write("big.safetensors", with_length(SafetensorsFile::kMaxHeaderBytes + 1));
  fs::resize_file(path, SafetensorsFile::kMaxHeaderBytes + 4096);
  expect_error(SafetensorsFile::open(path), StatusCode::kDataLoss, {path, "100000001", "100000000"});
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string whole = safetensors_bytes(kTwo, 16);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // Copies exactly this many bytes, so that a sanitizer finds a read past the end.
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(SafetensorsFile::parse(std::as_bytes(std::span(cut)), "x").ok()) << size;
  }
}

TEST(Safetensors, OpenRefusesWhatIsNoRegularFile) {
  const test::ScratchDir dir;
  expect_error(SafetensorsFile::open(dir.path() + "/absent"), StatusCode::kNotFound, {"absent", "No such file"});
  expect_error(SafetensorsFile::open(dir.path()), StatusCode::kDataLoss, {dir.path(), "regular"});
  expect_error(SafetensorsFile::open(dir.write("empty", "")), StatusCode::kDataLoss, {"empty", "0 bytes"});
  const std::string pipe = dir.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error(SafetensorsFile::open(pipe), StatusCode::kDataLoss, {"pipe", "regular"});
}

std::vector<StoredTensor> sample_tensors(const std::string& data) {
  return {{"bytes", StoredDtype::kU8, {3}, as_bytes(data).subspan(0, 3)},
          {"größe \"x\"", StoredDtype::kF32, {2, 2}, as_bytes(data).subspan(3, 16)},
          {"none", StoredDtype::kBF16, {0, 4}, {}},
          {"halves", StoredDtype::kF16, {3}, as_bytes(data).subspan(19, 6)}};
}

TEST(WriteSafetensors, ReadsBackEqualAndAligned) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/out.safetensors";
  std::string data;
  for (int i = 0; i < 25; ++i) data += static_cast<char>(i * 7);
  const std::vector<StoredTensor> tensors = sample_tensors(data);
  for (int round = 0; round < 2; ++round) {  // the second write replaces the first file
    const Status written = write_safetensors(path, tensors, {{"format", "pt"}, {"note", "ü\n"}});
    ASSERT_TRUE(written.ok()) << written.message();
  }
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->metadata().at("note"), "ü\n");
  ASSERT_EQ(file->tensors().size(), tensors.size());
  for (const StoredTensor& tensor : tensors) {
    const StoredTensor* got = file->find(tensor.name);
    ASSERT_NE(got, nullptr) << tensor.name;
    EXPECT_EQ(got->dtype, tensor.dtype);
    EXPECT_EQ(got->shape, tensor.shape);
    EXPECT_TRUE(std::ranges::equal(got->data, tensor.data)) << tensor.name;
    if (!got->data.empty()) {
      EXPECT_EQ(
          reinterpret_cast<std::uintptr_t>(got->data.data()) % static_cast<std::size_t>(stored_dtype_bytes(got->dtype)),
          0u)
          << tensor.name;
    }
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1)
      << "no temporary file is left";
}

TEST(WriteSafetensors, RefusesAndLeavesTheOldFile) {
  const test::ScratchDir dir;
  const std::string path = dir.write("out.safetensors", "old");
  const std::string data(64, 'x');
  std::vector<StoredTensor> twice = sample_tensors(data);
  twice.push_back(twice[0]);
  expect_error(write_safetensors(path, twice), StatusCode::kInvalidArgument, {path, "\"bytes\"", "twice"});
  const StoredTensor shorter{"t", StoredDtype::kF32, {4}, as_bytes(data).subspan(0, 15)};
  expect_error(write_safetensors(path, {{shorter}}), StatusCode::kInvalidArgument, {"\"t\"", "15 bytes", "F32", "[4]"});
  const StoredTensor negative{"t", StoredDtype::kF32, {-1}, {}};
  expect_error(write_safetensors(path, {{negative}}), StatusCode::kInvalidArgument, {"\"t\"", "[-1]"});
  const StoredTensor reserved{"__metadata__", StoredDtype::kU8, {0}, {}};
  expect_error(write_safetensors(path, {{reserved}}), StatusCode::kInvalidArgument, {"__metadata__", "reserved"});
  EXPECT_EQ(*read_text_file(path), "old");
  expect_error(write_safetensors(dir.path() + "/no/such/x", {}), StatusCode::kDataLoss, {"/no/such/x", "No such file"});
  // The last step, the rename, fails because the target is a folder. The temporary file must be removed.
  fs::create_directories(dir.path() + "/folder/inside");
  expect_error(write_safetensors(dir.path() + "/folder", {}), StatusCode::kDataLoss, {"rename"});
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 2);
}

TEST(RealSafetensors, AllAreReadAndTiled) {
  const fs::path shared = test::shared_dir();
  TESSERA_SKIP_WITHOUT(shared / "goldens");
  int files = 0;
  std::size_t tensors = 0, sum = 0;
  for (const char* folder : {"data/models", "goldens"}) {
    for (const auto& entry : fs::recursive_directory_iterator(shared / folder)) {
      if (entry.path().extension() != ".safetensors") continue;
      const Result<SafetensorsFile> file = SafetensorsFile::open(entry.path().string());
      ASSERT_TRUE(file.ok()) << file.status().message();
      for (const StoredTensor& tensor : file->tensors()) {
        std::int64_t product = 1;
        for (std::int64_t size : tensor.shape) product *= size;
        EXPECT_EQ(product, tensor.num_elements()) << tensor.name;
        for (std::byte b : tensor.data) sum += static_cast<std::size_t>(b);  // touches every page
      }
      tensors += file->tensors().size();
      ++files;
    }
  }
  std::printf("%d files, %zu tensors, sum of bytes %zu\n", files, tensors, sum);
  EXPECT_GE(files, 40);
}

TEST(RealSafetensors, KnownValues) {
  const fs::path format = test::shared_dir() / "data" / "models" / "format";
  TESSERA_SKIP_WITHOUT(format);
  const SafetensorsFile quantised = *SafetensorsFile::open((format / "scalellm_gptq_small.safetensors").string());
  int integers = 0;
  for (const StoredTensor& tensor : quantised.tensors()) integers += tensor.dtype == StoredDtype::kI32;
  EXPECT_GT(integers, 0);
  EXPECT_TRUE(SafetensorsFile::open((format / "iree_empty.safetensors").string())->tensors().empty());
  const fs::path stories = test::shared_dir() / "data" / "models" / "stories260k" / "model.safetensors";
  const SafetensorsFile model = *SafetensorsFile::open(stories.string());
  EXPECT_EQ(model.tensors().size(), 47u);
  EXPECT_THAT(model.find("model.embed_tokens.weight")->shape, ElementsAre(512, 64));
}

TEST(Safetensors, HeaderOfManyTensorsIsRead) {
  Json::Object members;
  constexpr int kTensors = 20000;
  for (int i = 0; i < kTensors; ++i) {
    Json::Object entry;
    entry.emplace_back("dtype", Json("BF16"));
    entry.emplace_back("shape", Json(Json::Array{Json(1)}));
    entry.emplace_back("data_offsets", Json(Json::Array{Json(2 * i), Json(2 * i + 2)}));
    members.emplace_back("model.layers." + std::to_string(i) + ".mlp.experts.down_proj.weight",
                         Json::object(std::move(entry)));
  }
  const std::string bytes = safetensors_bytes(Json::object(std::move(members)).dump(), 2 * kTensors);
  const auto start = std::chrono::steady_clock::now();
  const Result<SafetensorsFile> file = SafetensorsFile::parse(as_bytes(bytes), "x");
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors().size(), static_cast<std::size_t>(kTensors));
  std::printf("header of %d tensors, %zu bytes: %.1f ms\n", kTensors, bytes.size(), took.count());
}

// Applies deterministic mutations to header and length. Nothing may crash (run under sanitizers), and every accepted
// view must lie within the file.
TEST(SafetensorsFuzz, AcceptsOnlyViewsInsideTheFile) {
  std::mt19937 random(4711);
  int accepted = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string header = test::mutated(kTwo, random);
    if (round % 3 == 0) header = kTwo;
    std::string bytes = safetensors_bytes(header, 16);
    if (round % 3 == 0) bytes = test::mutated(std::move(bytes), random);
    const std::vector<char> exact(bytes.begin(), bytes.end());
    const auto span = std::as_bytes(std::span(exact));
    const Result<SafetensorsFile> file = SafetensorsFile::parse(span, "fuzz");
    if (!file.ok()) {
      ASSERT_LT(file.status().message().size(), 2000u);
      continue;
    }
    ++accepted;
    std::size_t covered = 0;
    for (const StoredTensor& tensor : file->tensors()) {
      ASSERT_GE(tensor.data.data(), span.data());
      ASSERT_LE(tensor.data.data() + tensor.data.size(), span.data() + span.size());
      ASSERT_EQ(tensor_bytes(tensor.shape, tensor.dtype), static_cast<std::int64_t>(tensor.data.size()));
      covered += tensor.data.size();
    }
    ASSERT_LE(covered, span.size());
  }
  std::printf("%d of 6000 mutated files accepted\n", accepted);
  EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace tessera
