#include "tessera/piecewise/backend.h"

#include <fmt/format.h>

#include <utility>

namespace tessera {
namespace {

class RecordingBackend final : public PiecewiseBackend {
 public:
  Result<std::unique_ptr<RecordedGraph>> capture(const BoundProgram& program, Stream& stream,
                                                 const std::string& what) const override {
    return capture_all({&program, 1}, stream, what);
  }

  Result<std::unique_ptr<RecordedGraph>> capture_all(std::span<const BoundProgram> programs, Stream& stream,
                                                     const std::string& what) const override {
    TRY(stream.begin_recording(what));
    for (const BoundProgram& program : programs) {
      Status status = program.enqueue(stream);
      if (status.ok()) continue;
      stream.abandon_recording();
      return std::move(status).with_context("capturing " + what);
    }
    return stream.end_recording().with_context("capturing " + what);
  }
};

}  // namespace

Result<std::unique_ptr<RecordedGraph>> PiecewiseBackend::capture_all(std::span<const BoundProgram> /*programs*/,
                                                                     Stream& /*stream*/,
                                                                     const std::string& what) const {
  return unimplemented(fmt::format("{}: the device's piecewise backend captures single parts, no whole forward", what));
}

const PiecewiseBackend& recording_backend() {
  static const RecordingBackend backend;
  return backend;
}

Status PiecewiseBackends::add(std::string device_type, std::shared_ptr<const PiecewiseBackend> backend) {
  const auto [entry, added] = backends_.emplace(std::move(device_type), std::move(backend));
  return added ? ok_status()
               : invalid_argument(fmt::format("devices of type \"{}\" have a piecewise backend already", entry->first));
}

const PiecewiseBackend& PiecewiseBackends::of(std::string_view device_type) const {
  const auto entry = backends_.find(device_type);
  return entry == backends_.end() ? recording_backend() : *entry->second;
}

}  // namespace tessera
