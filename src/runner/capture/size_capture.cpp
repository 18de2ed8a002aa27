#include "tessera/runner/capture/size_capture.h"

#include "tessera/base/log.h"
#include "tessera/runner/ranks/rank_order.h"

namespace tessera {

Status SizeCapture::capture(GraphRunner& runner, std::span<const std::int64_t> sizes) {
  const char* const rows = is_decode_role(runner.spec().role) ? "batch size (batch_size" : "num tokens (num_tokens";
  return runner.capture_each(sizes, parts_.model.options.show_progress, [&](std::int64_t size) {
    // Asking the driver for the free memory is slow, so the driver is asked only if the line is logged.
    if (log_enabled("capture", LogLevel::kDebug))
      log_debug("capture", "Capturing {}={} avail_mem={:.2f} GB)", rows, size,
                static_cast<double>(parts_.model.device.available_bytes()) / 1e9);
    return capture(runner, size);
  });
}

Status SizeCapture::capture(GraphRunner& runner, std::int64_t size) {
  const auto here = [&] {
    return runner.capture_one(size, [&](std::int64_t staged) { return launcher_.stage_dummy(runner, staged); });
  };
  Status captured = parts_.together({.kind = RankOrderKind::kCapture, .role = runner.spec().role, .size = size}, here);
  if (!captured.ok() && captured.code() != StatusCode::kDeviceLost) TRY(drop(runner, size, captured));
  return captured;
}

Status SizeCapture::drop(GraphRunner& runner, std::int64_t size, const Status& why) {
  return parts_.together({.kind = RankOrderKind::kDrop, .role = runner.spec().role, .size = size}, [&]() -> Status {
    TRY(parts_.stream().synchronize());
    if (runner.captured(size)) runner.drop(size, why);
    return ok_status();
  });
}

Status SizeCapture::add_full(std::int64_t size) {
  GraphRunner& runner = parts_.runner(RunnerRole::kPrefill);
  Status captured =
      parts_.together({.kind = RankOrderKind::kCaptureFull, .size = size}, [&] { return runner.capture_full(size); });
  if (!captured.ok() && captured.code() != StatusCode::kDeviceLost) TRY(drop_full(size));
  return captured;
}

Status SizeCapture::drop_full(std::int64_t size) {
  return parts_.together({.kind = RankOrderKind::kDropFull, .size = size}, [&]() -> Status {
    TRY(parts_.stream().synchronize());
    parts_.runner(RunnerRole::kPrefill).drop_full(size);
    return ok_status();
  });
}

}  // namespace tessera
