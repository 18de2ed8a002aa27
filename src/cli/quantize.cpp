#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "tessera/base/json.h"
#include "tessera/base/progress.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/model_source.h"
#include "tessera/cli/output.h"
#include "tessera/cli/serve/stop_signal.h"
#include "tessera/cli/session/session.h"
#include "tessera/cli/table.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/model/gguf/importance_matrix.h"
#include "tessera/model/quantise/quantised_output.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

// Checks the path of the GGUF file to write.
Status check_file(const std::string& file, const std::string& input, bool overwrite) {
  if (!fs::path(file).filename().string().ends_with(".gguf") || is_split_name(file))
    return invalid_argument(
        fmt::format("{}: accepted: a name that ends in .gguf, and not in -00001-of-00002.gguf or the like", file));
  std::error_code error;
  if (fs::is_directory(file, error)) return invalid_argument(fmt::format("{} is a folder; accepted: a file", file));
  if (!fs::exists(file, error)) return ok_status();
  const std::optional<std::string> gguf = TRY(find_gguf(input));
  if (fs::equivalent(file, gguf.value_or(input), error))
    return invalid_argument(fmt::format("{} is the model itself; give another file", file));
  if (overwrite) return ok_status();
  return invalid_argument(
      fmt::format("{} is there already; give another file, or --overwrite, which replaces it", file));
}

// Checks the path of the folder to write. Refuses a folder that is not empty, because it may hold files of other kinds.
Status check_folder(const std::string& folder) {
  if (folder.ends_with(".gguf"))
    return invalid_argument(fmt::format(
        "{} is the name of a GGUF file, but this type is written as a folder; accepted: a folder's name", folder));
  std::error_code error;
  if (!fs::exists(folder, error)) return ok_status();
  if (!fs::is_directory(folder, error))
    return invalid_argument(fmt::format("{} is a file; accepted: a folder", folder));
  if (fs::is_empty(folder, error)) return ok_status();
  return invalid_argument(fmt::format("{} is not empty; give a new folder", folder));
}

// Returns the folder that will contain the output.
fs::path folder_of(const std::string& output) {
  const fs::path folder = fs::path(output).lexically_normal().parent_path();
  return folder.empty() ? "." : folder;
}

Status check_space(const std::string& output, std::int64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder_of(output), error);
  if (error) return not_found(fmt::format("cannot write {}: {}", output, error.message()));
  const auto free = static_cast<std::int64_t>(space.available);
  if (bytes <= free) return ok_status();
  return resource_exhausted(fmt::format("{} has room for {}; {} needs {}, {} more", folder_of(output).string(),
                                        bytes_text(free), output, bytes_text(bytes), bytes_text(bytes - free)));
}

Status write(const QuantisedOutput& output, const QuantizeOptions& options) {
  std::atomic<bool> stopped{false};
  const std::unique_ptr<StopSignal> stop = TRY(StopSignal::watch({SIGINT, SIGTERM}, [&](int) { stopped = true; }));
  Progress progress("Quantising", output.bytes_after(), "B", !options.json && progress_wanted());
  return output.write(options.output, [&](std::int64_t bytes) {
    progress.advance(bytes);
    return stopped ? cancelled(fmt::format("stopped: nothing is written to {}", options.output)) : ok_status();
  });
}

// The totals over all tensors of one type in the output.
struct OfType {
  std::int64_t tensors = 0;
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
};

std::map<std::string, OfType> by_type(const QuantisedOutput& output) {
  std::map<std::string, OfType> types;
  for (const QuantisedTensor& tensor : output.tensors()) {
    OfType& type = types[tensor.to];
    std::int64_t elements = 1;
    for (const std::int64_t size : tensor.shape) elements *= size;
    ++type.tensors;
    type.elements += elements;
    type.bytes += tensor.bytes_after;
  }
  return types;
}

double bits_per_weight(const QuantisedOutput& output) {
  return 8 * static_cast<double>(output.bytes_after()) / static_cast<double>(output.elements());
}

std::string summary(const QuantisedOutput& output, const QuantizeOptions& options, double seconds) {
  Table table({"type", ">tensors", ">weights", ">bytes"});
  for (const auto& [name, type] : by_type(output))
    table.add({name, count_text(type.tensors), count_text(type.elements), bytes_text(type.bytes)});
  return table.text() + fmt::format("{}: {} became {}, {:.2f} bits per weight, in {} s\n", options.output,
                                    bytes_text(output.bytes_before()), bytes_text(output.bytes_after()),
                                    bits_per_weight(output), number_text(seconds));
}

Json report(const QuantisedOutput& output, const QuantizeOptions& options, double seconds) {
  Json types = Json::object();
  for (const auto& [name, type] : by_type(output))
    types.set(name, Json::object().set("tensors", type.tensors).set("weights", type.elements).set("bytes", type.bytes));
  Json::Array tensors;
  for (const QuantisedTensor& tensor : output.tensors()) {
    Json::Array shape;
    for (const std::int64_t size : tensor.shape) shape.emplace_back(size);
    tensors.emplace_back(Json::object())
        .set("name", tensor.name)
        .set("shape", std::move(shape))
        .set("from", tensor.from)
        .set("to", tensor.to)
        .set("bytes", tensor.bytes_after);
  }
  Json::Array notes;
  for (const std::string& note : output.notes()) notes.emplace_back(note);
  Json json = Json::object();
  json.set("output", options.output)
      .set("type", options.type)
      .set("bytes_before", output.bytes_before())
      .set("bytes_after", output.bytes_after())
      .set("weights", output.elements())
      .set("bits_per_weight", bits_per_weight(output))
      .set("seconds", seconds)
      .set("types", std::move(types))
      .set("notes", std::move(notes))
      .set("tensors", std::move(tensors));
  return json;
}

}  // namespace

Status run_quantize(const QuantizeOptions& options) {
  const std::string input = TRY(find_model_folder(options.input, options.source, ModelContent::kWeights, hub_settings(),
                                                  !options.json && progress_wanted()));
  TRY(output_form(options.type) == OutputForm::kGguf ? check_file(options.output, input, options.overwrite)
                                                     : check_folder(options.output));
  const Registry& registry = *options.registry;
  std::optional<ImportanceMatrix> importance;
  if (!options.importance.empty()) importance = TRY(read_importance(options.importance).with_context("--imatrix"));
  const std::unique_ptr<QuantisedOutput> output =
      TRY(plan_quantised(input, options.type, registry.ops, registry.families, importance ? &*importance : nullptr));
  TRY(check_space(options.output, output->file_bytes()));
  if (!options.json)
    for (const std::string& note : output->notes()) write_error("Note: " + note + "\n");
  const auto start = std::chrono::steady_clock::now();
  TRY(write(*output, options));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return write_output(options.json ? report(*output, options, seconds).dump(2) + "\n"
                                   : summary(*output, options, seconds));
}

}  // namespace tessera::cli
