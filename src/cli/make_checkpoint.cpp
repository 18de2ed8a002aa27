#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <numeric>

#include "tessera/base/json.h"
#include "tessera/base/progress.h"
#include "tessera/base/write_file.h"
#include "tessera/cli/checkpoint_folder.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/output.h"
#include "tessera/cli/serve/stop_signal.h"
#include "tessera/cli/session/session.h"
#include "tessera/cli/table.h"
#include "tessera/model/layers/draft.h"
#include "tessera/model/model.h"
#include "tessera/model/weights/model_path.h"
#include "tessera/model/weights/random_checkpoint.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

// One data type, as files store it, as graphs use it, and as config.json names it.
struct DtypeNames {
  StoredDtype stored;
  ir::DType dtype;
  const char* name;
};
constexpr DtypeNames kDtypes[] = {{StoredDtype::kF32, ir::DType::kFloat32, "float32"},
                                  {StoredDtype::kBF16, ir::DType::kBFloat16, "bfloat16"},
                                  {StoredDtype::kF16, ir::DType::kFloat16, "float16"}};

const DtypeNames& names_of(StoredDtype stored) {
  for (const DtypeNames& names : kDtypes)
    if (names.stored == stored) return names;
  return kDtypes[0];
}

// The config that the weights are made for, and the text of the new config.json.
struct Source {
  fs::path file;
  std::string text;  // text of the new config.json
  ModelConfig config;
  StoredDtype dtype = StoredDtype::kF32;
};

// Reads the config. Changes the text only if the config does not name the weights' data type.
Result<Source> read_source(const MakeCheckpointOptions& options) {
  Source source;
  source.file = config_file(options.config);
  source.config = TRY(ModelConfig::read(source.file.string(), options.registry->families));
  source.text = TRY(read_text_file(source.file.string()));
  source.dtype = options.dtype.value_or(source.config.dtype.value_or(kDefaultWeightDtype));
  if (source.dtype == source.config.dtype) return source;
  Json json = TRY(Json::parse(source.text, source.file.string()));
  json.set(json.find("dtype") != nullptr ? "dtype" : "torch_dtype", names_of(source.dtype).name);
  source.text = json.dump(2) + "\n";
  return source;
}

// Returns the files to copy with the weights: the tokenizer's files, and the file of the default sampling parameters.
Result<std::vector<fs::path>> files_beside(const MakeCheckpointOptions& options, const fs::path& config_folder) {
  std::error_code error;
  const bool given = !options.tokenizer_path.empty();
  fs::path folder = given ? fs::path(options.tokenizer_path) : config_folder;
  const std::string name = folder.filename().string();
  if (given && (name == "tokenizer.json" || name == "tokenizer.model")) folder = folder.parent_path();
  std::vector<fs::path> files = tokenizer_files(folder);
  const bool found = std::any_of(files.begin(), files.end(), [](const fs::path& file) {
    return file.filename() == "tokenizer.json" || file.filename() == "tokenizer.model";
  });
  if (given && !found) {
    return invalid_argument(
        fmt::format("--tokenizer-path: {} has no tokenizer; accepted: a folder with tokenizer.json or tokenizer.model, "
                    "or that file",
                    options.tokenizer_path));
  }
  const fs::path generation = config_folder / "generation_config.json";
  if (fs::is_regular_file(generation, error)) files.push_back(generation);
  return files;
}

// Returns the bytes of the weights plus the bytes of headers, the index and the other files.
std::int64_t bytes_needed(const RandomCheckpoint& checkpoint, const Source& source,
                          const std::vector<fs::path>& beside) {
  constexpr std::int64_t kAround = 4096;  // margin for each file, since its last block is not full
  std::int64_t bytes = checkpoint.total_bytes() + std::ssize(source.text) + kAround;
  for (const TensorLayout& tensor : checkpoint.tensors()) bytes += 256 + 2 * std::ssize(tensor.name);
  for (const fs::path& file : beside) {
    std::error_code error;
    bytes += static_cast<std::int64_t>(fs::file_size(file, error)) + kAround;
  }
  return bytes + kAround * std::ssize(checkpoint.files());
}

Status copy_beside(const std::vector<fs::path>& files, const fs::path& folder) {
  for (const fs::path& file : files) TRY(replace_file(folder / file.filename(), TRY(read_text_file(file.string()))));
  return ok_status();
}

// Writes the weights. A signal stops it.
Status write_weights(const RandomCheckpoint& checkpoint, const CheckpointFolder& folder) {
  std::atomic<bool> stopped{false};
  const std::unique_ptr<StopSignal> stop = TRY(StopSignal::watch({SIGINT, SIGTERM}, [&](int) { stopped = true; }));
  Progress progress("Writing weights", checkpoint.total_bytes(), "B", progress_wanted());
  const Status status = checkpoint.write(folder.path().string(), [&](std::int64_t bytes) {
    progress.advance(bytes);
    return stopped ? cancelled(fmt::format("stopped: no weights are in {}", folder.path().string())) : ok_status();
  });
  if (!status.ok()) folder.undo();
  return status;
}

}  // namespace

Status run_make_checkpoint(const MakeCheckpointOptions& options) {
  const Source source = TRY(read_source(options));
  const FamilyRegistry& families = options.registry->families;
  const ModelOptions model{.dtype = names_of(source.dtype).dtype,
                           .draft_layer = check_draft_layer(source.config, families).ok()};
  const ModelGraphs graphs =
      TRY(build_model(source.config, model, options.registry->ops, families).with_context(source.file.string()));
  const RandomCheckpoint checkpoint =
      TRY(RandomCheckpoint::plan(graphs.weights, options.checkpoint).with_context(source.file.string()));
  const std::vector<fs::path> beside = TRY(files_beside(options, source.file.parent_path()));
  const CheckpointFolder folder = TRY(CheckpointFolder::check(options.folder, source.file, options.overwrite));
  const std::int64_t needed = bytes_needed(checkpoint, source, beside);
  write_error(fmt::format("Writing {} parameters of {}, {} ({} bytes) in {} to {}, which has room for {}\n",
                          count_text(checkpoint.total_elements()), names_of(source.dtype).name,
                          bytes_text(checkpoint.total_bytes()), count_text(checkpoint.total_bytes()),
                          plural(std::ssize(checkpoint.files()), "file"), options.folder,
                          bytes_text(folder.free_bytes())));
  TRY(folder.check_space(needed));
  TRY(folder.begin());
  const auto start = std::chrono::steady_clock::now();
  TRY(write_weights(checkpoint, folder));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  TRY(copy_beside(beside, folder.path()));
  TRY(replace_file(folder.path() / "config.json", source.text));
  return write_output(fmt::format("{}: {} in {} s, {} GB/s, on disk\n", options.folder,
                                  bytes_text(checkpoint.total_bytes()), number_text(seconds),
                                  number_text(static_cast<double>(checkpoint.total_bytes()) / seconds / 1e9)));
}

}  // namespace tessera::cli
