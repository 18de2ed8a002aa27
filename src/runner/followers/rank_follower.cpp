#include "tessera/runner/followers/rank_follower.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "tessera/runner/capture/graph_capture.h"
#include "tessera/runner/dummy_batch.h"
#include "tessera/runner/ranks/adapter_order.h"
#include "tessera/runner/verify/soak.h"
#include "tessera/runner/verify/verify.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {

RankFollower::RankFollower(int rank, RankChannel& channel, std::unique_ptr<Communicator> communicator,
                           std::unique_ptr<RankHost> host)
    : rank_(rank), channel_(channel), communicator_(std::move(communicator)), host_(std::move(host)) {}

// Carries out messages until the channel is closed. If the work that a message orders fails, aborts the collectives in
// which the other ranks wait.
void RankFollower::run() {
  while (const std::optional<RankChannel::Message> message = channel_.receive(rank_)) {
    RankAnswer answer;
    try {
      answer.status = carry_out(*message, answer);
    } catch (const std::exception& e) {  // usually out of memory; the rank's state may be half changed
      answer.status = device_lost(fmt::format("an exception ended the order: {}", e.what()));
    }
    if (!answer.status.ok()) communicator_->abort(answer.status.message());
    channel_.reply(rank_, message->number, std::move(answer));
  }
}

Status RankFollower::carry_out(const RankChannel::Message& message, RankAnswer& answer) {
  MessageReader reader = TRY(MessageReader::open(message.bytes));
  if (reader.kind() < 1 || reader.kind() > kLastRankOrder)
    return data_loss(fmt::format("a message of kind {}; 1 to {} is accepted", reader.kind(), kLastRankOrder));
  const auto kind = static_cast<RankOrderKind>(reader.kind());
  if (kind == RankOrderKind::kLoad) return load(reader);
  if (kind != RankOrderKind::kPlan && runner_ == nullptr)
    return failed_precondition(fmt::format("a message of kind {} before the weights are loaded", reader.kind()));
  switch (kind) {
    case RankOrderKind::kForward: return forwards_->run(reader, answer);
    case RankOrderKind::kEncodeImages: return encode(reader);
    case RankOrderKind::kReadDrafts: return read_drafts(reader, answer);
    case RankOrderKind::kDraft: return draft(reader);
    case RankOrderKind::kWriteAdapter: return write_adapter(reader, message.beside);
    default: return carry_out(TRY(unpack_order(kind, reader)), answer);
  }
}

Status RankFollower::carry_out(const RankOrder& order, RankAnswer& answer) {
  if (order.kind == RankOrderKind::kPlan) return make_plan(order.size, answer);
  if (order.kind == RankOrderKind::kCollect) return forwards_->collect(answer);
  RunnerParts& parts = runner_->parts();
  if (order.role == RunnerRole::kVision)
    return data_loss("an order of forwards names the vision tower, which runs none");
  // If this rank is a pipeline stage without a head, it skips orders for the head, for the other runners that come
  // after the body, and for drafts.
  if (!parts.model.graphs.has_head && (std::ranges::find(kCapturedRoles, order.role) == kCapturedRoles.end() ||
                                       parts.find_runner(order.role) == nullptr))
    return ok_status();
  GraphRunner& runner = parts.runner(order.role);
  switch (order.kind) {
    case RankOrderKind::kPrepare: return runner_->prepare();
    case RankOrderKind::kCapture: {
      Status captured = runner_->captures().capture(runner, order.size);
      runner_->refresh_dispatch();
      return captured;
    }
    case RankOrderKind::kDrop: return drop(runner, order.size);
    case RankOrderKind::kCaptureFull: return runner.capture_full(order.size);
    case RankOrderKind::kDropFull: return runner_->captures().drop_full(order.size);
    case RankOrderKind::kStageDummy: return runner_->step().launcher().stage_dummy(runner, order.size);
    case RankOrderKind::kStagePages: return runner_->step().launcher().stage_pages(order.size);
    case RankOrderKind::kReplay: TRY(runner.replay(order.size, order.form)); return parts.stream().synchronize();
    case RankOrderKind::kRunEagerly:
      TRY(runner.make_ready(order.size));
      TRY(runner.run(order.size));
      return parts.stream().synchronize();
    case RankOrderKind::kForget: runner.forget(order.size); return ok_status();
    case RankOrderKind::kAvailable: answer.value = parts.model.device.available_bytes(); return ok_status();
    case RankOrderKind::kReserveRows: return runner_->reserve_embeddings(order.size);
    case RankOrderKind::kCaptureTower:
      if (order.size == kTowersStart) return GraphCapture::capture_start_budgets(parts);
      if (parts.vision() == nullptr) return failed_precondition("a capture of the tower of a model that has none");
      return parts.vision()->capture_next().status();
    case RankOrderKind::kDiscard: return forwards_->discard();
    case RankOrderKind::kMemory: {
      MessageWriter writer(answer.content, static_cast<std::uint32_t>(order.kind), 0);
      pack_memory(runner_->memory(), writer);
      writer.finish();
      return ok_status();
    }
    case RankOrderKind::kVerify: return verify_here();
    case RankOrderKind::kSoak: return soak_here(order);
    default:
      return data_loss(
          fmt::format("a message of kind {} cannot be decoded as a RankOrder", static_cast<int>(order.kind)));
  }
}

Status RankFollower::make_plan(std::int64_t max_running, RankAnswer& answer) {
  const RankLimits limits = TRY(host_->plan(max_running));
  MessageWriter writer(answer.content, static_cast<std::uint32_t>(RankOrderKind::kPlan), 0);
  pack_limits(limits, writer);
  writer.finish();
  return ok_status();
}

Status RankFollower::load(MessageReader& from) {
  const RankLimits agreed = TRY(unpack_limits(from));
  runner_ = TRY(host_->load(agreed, *communicator_));
  forwards_.emplace(runner_->parts(), runner_->forwards());
  return ok_status();
}

Status RankFollower::encode(MessageReader& from) {
  const ReceivedImages received = TRY(unpack_images(from));
  VisionRunner* tower = runner_->vision();
  if (tower == nullptr) return failed_precondition("images for a model without a vision tower");
  std::vector<const Patches*> images;
  for (const Patches& image : received.images) images.push_back(&image);
  return tower->encode(images, received.first_rows, runner_->embeddings_base());
}

// Returns kDeviceLost if a message cannot be read. Later messages contain only the differences from earlier ones, so
// the rank could not read them either.
Status RankFollower::read_drafts(MessageReader& from, RankAnswer& answer) {
  if (const Status read = draft_inputs_.unpack(from); !read.ok())
    return device_lost(fmt::format("the message of rows to draft from cannot be read: {}", read.message()));
  if (!drafts()) return ok_status();
  LocalDrafts& here = runner_->drafts().here();
  Status read = here.read(draft_inputs_.inputs());
  answer.replay_failed = here.replay_failed();
  return read;
}

Status RankFollower::draft(MessageReader& from) {
  const DraftRows rows = TRY(unpack_draft_rows(from));
  return drafts() ? runner_->drafts().here().draft(rows) : ok_status();
}

Status RankFollower::write_adapter(MessageReader& from, std::shared_ptr<const void> beside) {
  RunnerParts& parts = runner_->parts();
  if (parts.memory().adapters == nullptr) return failed_precondition("an adapter for a model that serves none");
  const AdapterLayout& layout = parts.memory().adapters->layout();
  const std::int64_t slot = TRY(from.choice("slot", layout.limits().slots - 1));
  std::shared_ptr<const AdapterShare>& share = written_[slot];
  if (share != nullptr) TRY(parts.stream().synchronize());  // the stream may still copy the old share
  if (beside != nullptr) {
    const auto adapter = std::static_pointer_cast<const Adapter>(std::move(beside));
    TRY(from.finish());
    share = {adapter, &adapter->share(layout.rank())};
  } else {
    share = std::make_shared<const AdapterShare>(TRY(unpack_share(from, layout, runner_->device())));
  }
  return parts.memory().adapters->write(slot, *share, parts.stream());
}

Status RankFollower::drop(GraphRunner& runner, std::int64_t size) {
  if (runner.captured(size)) {
    TRY(runner_->parts().stream().synchronize());
    runner.drop(size, internal_error("another rank has no graph of it"));
  }
  runner_->refresh_dispatch();
  return ok_status();
}

Status RankFollower::verify_here() {
  const VerifyReport report = TRY(verify(*runner_, /*show_progress=*/false));
  const auto differs = std::ranges::find_if(report.rows, [](const VerifyRow& row) { return !row.difference.empty(); });
  if (differs == report.rows.end()) return ok_status();
  return internal_error(fmt::format("{} size {}, {} of them real: {}", differs->runner, differs->size, differs->real,
                                    differs->difference));
}

Status RankFollower::soak_here(const RankOrder& order) {
  const SoakReport report =
      TRY(soak(*runner_, {.batches = order.size, .seed = order.seed, .tolerance = order.tolerance}));
  if (report.num_failures == 0) return ok_status();
  return internal_error(
      fmt::format("{} of {} batches differ, first {}", report.num_failures, report.batches, report.failures.front()));
}

}  // namespace tessera
