#include "tessera/piecewise/backend.h"

#include <fmt/format.h>

namespace tessera {

Status PartBackend::bind(const BindTarget& target) {
  BoundProgram bound =
      TRY(program_.bind(target).with_context(fmt::format("{} at {}", name_, target.bucket.to_string())));
  entries_[target.bucket] = {std::make_unique<BoundProgram>(std::move(bound)), nullptr};
  return ok_status();
}

const PartBackend::Entry* PartBackend::find(const ir::Bucket& bucket) const {
  const auto it = entries_.find(bucket);
  return it == entries_.end() ? nullptr : &it->second;
}

const BoundProgram* PartBackend::bound(const ir::Bucket& bucket) const {
  const Entry* entry = find(bucket);
  return entry == nullptr ? nullptr : entry->bound.get();
}

Status PartBackend::enqueue(const ir::Bucket& bucket, Stream& stream) const {
  const Entry* entry = find(bucket);
  if (entry == nullptr) return internal_error(fmt::format("{} is not bound for {}", name_, bucket.to_string()));
  Status status = entry->bound->enqueue(stream);
  if (!status.ok()) [[unlikely]]
    return std::move(status).with_context(fmt::format("{} at {}", name_, bucket.to_string()));
  return ok_status();
}

Status PartBackend::capture(const ir::Bucket& bucket, Stream& stream) {
  Entry* entry = const_cast<Entry*>(find(bucket));
  if (entry == nullptr) return internal_error(fmt::format("{} is not bound for {}", name_, bucket.to_string()));
  if (!recordable()) return ok_status();

  const std::string what = fmt::format("{} at {}", name_, bucket.to_string());
  TRY(stream.begin_recording(what));
  if (Status status = entry->bound->enqueue(stream); !status.ok()) {
    stream.abandon_recording();
    return std::move(status).with_context("capturing " + what);
  }
  entry->graph = TRY(stream.end_recording().with_context("capturing " + what));
  return ok_status();
}

void PartBackend::drop_graph(const ir::Bucket& bucket) {
  if (const auto it = entries_.find(bucket); it != entries_.end()) it->second.graph.reset();
}

Status PartBackend::replay(const ir::Bucket& bucket, Stream& stream) const {
  const Entry* entry = find(bucket);
  if (entry == nullptr || entry->graph == nullptr) return enqueue(bucket, stream);
  Status status = entry->graph->launch(stream);
  if (!status.ok()) [[unlikely]]
    return std::move(status).with_context(fmt::format("replaying {} at {}", name_, bucket.to_string()));
  return ok_status();
}

bool PartBackend::captured(const ir::Bucket& bucket) const {
  const Entry* entry = find(bucket);
  return entry != nullptr && entry->graph != nullptr;
}

GraphStats PartBackend::graph_stats(const ir::Bucket& bucket) const {
  const Entry* entry = find(bucket);
  return entry == nullptr || entry->graph == nullptr ? GraphStats{} : entry->graph->stats();
}

GraphStats PartBackend::graph_stats() const {
  GraphStats total;
  for (const auto& [bucket, entry] : entries_) {
    if (entry.graph == nullptr) continue;
    const GraphStats stats = entry.graph->stats();
    total.nodes += stats.nodes;
    total.bytes += stats.bytes;
  }
  return total;
}

}  // namespace tessera
