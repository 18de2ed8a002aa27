// How a part of a forward becomes one launch. A device may bring its own way beside the recording of its stream.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/compile/program.h"
#include "tessera/device/device.h"

namespace tessera {

class PiecewiseBackend {
 public:
  virtual ~PiecewiseBackend() = default;
  // A graph whose launch does what program.enqueue(stream) does. Nothing runs meanwhile. The graph does not outlive the
  // program. `what` names part and bucket in errors. After an error the stream does not record.
  virtual Result<std::unique_ptr<RecordedGraph>> capture(const BoundProgram& program, Stream& stream,
                                                         const std::string& what) const = 0;
  // One graph whose launch does what the programs do one after another: a forward with its split operators. As
  // capture() otherwise. kUnimplemented unless the backend has it: such forwards stay in parts.
  virtual Result<std::unique_ptr<RecordedGraph>> capture_all(std::span<const BoundProgram> programs, Stream& stream,
                                                             const std::string& what) const;
  // What who plans a start should know of it: "pieces run operator by operator: …". Empty: nothing.
  virtual std::string note() const { return {}; }
};

// Records the program's launches on the stream.
const PiecewiseBackend& recording_backend();

// Devices' own ways, by type of device. Adding is for one thread, before it is read; then it is immutable.
class PiecewiseBackends {
 public:
  // kInvalidArgument where the type has one.
  Status add(std::string device_type, std::shared_ptr<const PiecewiseBackend> backend);
  // recording_backend() for every other type.
  const PiecewiseBackend& of(std::string_view device_type) const;

 private:
  std::map<std::string, std::shared_ptr<const PiecewiseBackend>, std::less<>> backends_;
};

}  // namespace tessera
