#include "tessera/piecewise/backend.h"

namespace tessera {
namespace {

class RecordingBackend final : public PiecewiseBackend {
 public:
  Result<std::unique_ptr<RecordedGraph>> capture(const BoundProgram& program, Stream& stream,
                                                 const std::string& what) const override {
    TRY(stream.begin_recording(what));
    if (Status status = program.enqueue(stream); !status.ok()) {
      stream.abandon_recording();
      return std::move(status).with_context("capturing " + what);
    }
    return stream.end_recording().with_context("capturing " + what);
  }
};

}  // namespace

const PiecewiseBackend& recording_backend() {
  static const RecordingBackend backend;
  return backend;
}

}  // namespace tessera
