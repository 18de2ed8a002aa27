#include "tessera/ops/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "tessera/ops/cpu_math.h"
#include "tessera/ops/node_ends.h"
#include "tessera/ops/node_exchange.h"

namespace tessera {
namespace {

// Of a stage's rank among the ranks of all stages, by which errors name it.
std::int64_t place_of(const Communicator& communicator, std::int64_t rank) {
  return communicator.place() - communicator.rank() + rank;
}

// For i in [begin, end): element i - origin of the tensors `to` = the sum of all tensors' elements i, in order.
template <class T>
TESSERA_CPU_CLONES void reduce_range(std::span<const TensorView> tensors, std::span<const TensorView> to,
                                     std::int64_t begin, std::int64_t end, std::int64_t origin = 0) {
  constexpr std::int64_t kBlock = 256;
  float sum[kBlock];
  for (std::int64_t first = begin; first < end; first += kBlock) {
    const std::int64_t n = end - first < kBlock ? end - first : kBlock;
    for (std::int64_t i = 0; i < n; ++i) sum[i] = 0.0f;
    for (const TensorView& tensor : tensors) {
      const T* x = tensor.as<T>() + first;
      for (std::int64_t i = 0; i < n; ++i) sum[i] += to_float(x[i]);
    }
    for (const TensorView& tensor : to) {
      T* x = tensor.as<T>() + (first - origin);
      for (std::int64_t i = 0; i < n; ++i) x[i] = from_float<T>(sum[i]);
    }
  }
}

}  // namespace

struct Communicator::Group {
  // `nodes_in` null: all ranks are in this process.
  Group(int ranks, std::chrono::milliseconds limit_in, const std::shared_ptr<NodeGroup>& nodes_in)
      : limit(limit_in),
        nodes(nodes_in == nullptr ? nullptr : std::make_unique<NodeExchange>(nodes_in, ranks, limit_in)),
        first(nodes == nullptr ? 0 : nodes->first_rank()),
        here(nodes == nullptr ? ranks : nodes->ranks_here()),
        tensors(static_cast<std::size_t>(ranks)),
        calls(static_cast<std::size_t>(ranks)) {}

  int size() const { return static_cast<int>(tensors.size()); }
  std::span<const TensorView> tensors_here() const {
    return std::span(tensors).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(here));
  }
  bool follows() const { return nodes != nullptr && !nodes->leads(); }
  // Releases all that wait, on hosts and devices. Precondition: the mutex is held.
  void end(Status why) {
    ended = std::move(why);
    if (nodes != nullptr) nodes->end(ended);
    for (std::atomic<std::uint32_t>* flag : flags) flag->store(1);
    moved.notify_all();
  }
  // The last rank to arrive releases the others. Precondition: the mutex is held.
  bool arrive() {
    if (++arrived < here) return false;
    arrived = 0;
    ++generation;
    moved.notify_all();
    return true;
  }
  // Until all ranks of this process have come; nothing ends this wait.
  void meet(bool ends_call) {
    std::unique_lock lock(mutex);
    const std::int64_t came = generation;
    if (ends_call && arrived + 1 == here) std::ranges::fill(calls, std::string_view());
    if (!arrive()) moved.wait(lock, [&] { return generation != came; });
  }
  // False: it had ended before.
  bool end_once(Status why) {
    const std::lock_guard lock(mutex);
    if (!ended.ok()) return false;
    end(std::move(why));
    return true;
  }
  // As it was made; of several nodes, for the restart of that number.
  void begin(std::uint64_t epoch) {
    if (nodes != nullptr) nodes->begin(epoch);
    const std::lock_guard lock(mutex);
    ended = ok_status();
    arrived = 0;
    std::ranges::fill(calls, std::string_view());
  }
  static void take_frames_of(NodeGroup& from, const std::weak_ptr<Group>& group);

  const std::chrono::milliseconds limit;
  const std::unique_ptr<NodeExchange> nodes;  // null: one process
  const int first;                            // rank of this process
  const int here;                             // ranks of this process
  std::mutex mutex;
  std::condition_variable moved;
  int arrived = 0;                                 // ranks at the current barrier
  std::int64_t generation = 0;                     // barriers passed so far
  Status ended;                                    // not ok once a rank has aborted
  std::vector<std::atomic<std::uint32_t>*> flags;  // of raise_when_ended(), by any rank
  // Entry r is written by rank r in enter(), of other nodes' ranks by the first rank here; all are read between enter()
  // and leave(). A rank that is not in a call has an empty name.
  std::vector<TensorView> tensors;
  std::vector<std::string_view> calls;
  // Written by the first rank of this process between two barriers.
  Status exchanged;
  TensorView result;
};

// The groups of this process's stages and what lies between all stages: a fault of a rank ends all of it.
struct Communicator::Stages {
  Stages(const RankLayout& layout, std::chrono::milliseconds limit, std::shared_ptr<NodeGroup> nodes_in)
      : nodes(std::move(nodes_in)), pipeline(layout, limit, nodes) {
    for (int stage = 0; stage < layout.pp_size; ++stage)
      if (pipeline.is_here(layout.rank_at(stage, 0)))
        groups[stage] = std::make_shared<Group>(layout.tp_size, limit, nullptr);
  }
  // False: it had ended before.
  bool end_once(const Status& why) {
    bool ended = false;
    for (const auto& [stage, group] : groups) ended |= group->end_once(why);
    pipeline.end(why);
    return ended;
  }
  void begin(std::uint64_t epoch) {
    pipeline.begin(epoch);
    for (const auto& [stage, group] : groups) group->begin(epoch);
  }
  static void take_frames_of(NodeGroup& from, const std::weak_ptr<Stages>& stages);

  const std::shared_ptr<NodeGroup> nodes;  // null: one process
  Pipeline pipeline;
  std::map<int, std::shared_ptr<Group>> groups;  // by stage
};

// What other nodes say. A connection may go on for longer than the ranks that own a group, where one of them fails:
// what comes then is for nobody.
void Communicator::Group::take_frames_of(NodeGroup& from, const std::weak_ptr<Group>& group) {
  from.take(FrameKind::kTensors, [group](int node, std::vector<std::byte>& payload) {
    const std::shared_ptr<Group> owner = group.lock();
    return owner == nullptr ? ok_status() : owner->nodes->take_tensors(node, payload);
  });
  from.take(FrameKind::kResult, [group](int, std::vector<std::byte>& payload) {
    const std::shared_ptr<Group> owner = group.lock();
    return owner == nullptr ? ok_status() : owner->nodes->take_result(payload);
  });
  take_ends(from, group);
}

void Communicator::Stages::take_frames_of(NodeGroup& from, const std::weak_ptr<Stages>& stages) {
  from.take(FrameKind::kStageValue, [stages](int, std::vector<std::byte>& payload) {
    const std::shared_ptr<Stages> owner = stages.lock();
    return owner == nullptr ? ok_status() : owner->pipeline.take_value(payload);
  });
  from.take(FrameKind::kStageTaken, [stages](int, std::vector<std::byte>& payload) {
    const std::shared_ptr<Stages> owner = stages.lock();
    return owner == nullptr ? ok_status() : owner->pipeline.take_taken(payload);
  });
  take_ends(from, stages);
}

Communicator::Communicator(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

std::vector<std::unique_ptr<Communicator>> Communicator::create_stages(const RankLayout& layout,
                                                                       std::chrono::milliseconds limit,
                                                                       const std::shared_ptr<NodeGroup>& nodes) {
  const auto stages = std::make_shared<Stages>(layout, limit, nodes);
  if (nodes != nullptr) Stages::take_frames_of(*nodes, stages);
  std::vector<std::unique_ptr<Communicator>> members;
  for (int place = 0; place < layout.ranks(); ++place) {
    const auto group = stages->groups.find(layout.stage_of(place));
    if (group == stages->groups.end()) continue;  // another node's
    members.push_back(std::unique_ptr<Communicator>(new Communicator(group->second, layout.rank_in_stage(place))));
    members.back()->stages_ = stages;
    members.back()->place_ = place;
  }
  return members;
}

Communicator::~Communicator() { abort("its communicator is gone"); }

std::vector<std::unique_ptr<Communicator>> Communicator::create_group(int ranks, std::chrono::milliseconds limit) {
  return create_node_group(ranks, limit, nullptr);
}

std::vector<std::unique_ptr<Communicator>> Communicator::create_node_group(int ranks, std::chrono::milliseconds limit,
                                                                           const std::shared_ptr<NodeGroup>& nodes) {
  const auto group = std::make_shared<Group>(ranks, limit, nodes);
  if (nodes != nullptr) Group::take_frames_of(*nodes, group);
  std::vector<std::unique_ptr<Communicator>> members;
  for (int r = group->first; r < group->first + group->here; ++r)
    members.push_back(std::unique_ptr<Communicator>(new Communicator(group, r)));
  return members;
}

int Communicator::ranks() const { return group_->size(); }
bool Communicator::spans_processes() const { return group_->nodes != nullptr; }
std::chrono::milliseconds Communicator::limit() const { return group_->limit; }
int Communicator::place() const { return stages_ == nullptr ? rank_ : place_; }
int Communicator::places() const { return stages_ == nullptr ? ranks() : stages_->pipeline.layout().ranks(); }
Pipeline* Communicator::pipeline() { return stages_ == nullptr ? nullptr : &stages_->pipeline; }
bool Communicator::is_first_here() const { return rank_ == group_->first; }

NodeGroup* Communicator::nodes() const {
  if (stages_ != nullptr) return stages_->nodes.get();
  return group_->nodes == nullptr ? nullptr : &group_->nodes->nodes();
}

// The other nodes are told outside of the lock: a connection may take its time.
void Communicator::end_group(const Status& why) {
  if (!(stages_ != nullptr ? stages_->end_once(why) : group_->end_once(why))) return;
  if (NodeGroup* const others = nodes(); others != nullptr) tell_end(*others, why.message());
}

void Communicator::abort(std::string_view reason) {
  end_group(cancelled(fmt::format("rank {} of {} left the group: {}", place(), places(), reason)));
}

Status Communicator::restart() {
  const auto has_kernels = [](Group& group) {
    const std::lock_guard lock(group.mutex);
    return !group.flags.empty();
  };
  const bool kernels =
      stages_ == nullptr ? has_kernels(*group_)
                         : std::ranges::any_of(stages_->groups, [&](const auto& g) { return has_kernels(*g.second); });
  if (kernels) return failed_precondition("kernels on devices have lost count of one another");
  NodeGroup* const others = nodes();
  const std::uint64_t last = stages_ != nullptr  ? stages_->pipeline.epoch()
                             : others != nullptr ? group_->nodes->epoch()
                                                 : 0;
  const std::uint64_t epoch = last + 1;
  stages_ != nullptr ? stages_->begin(epoch) : group_->begin(epoch);
  if (others == nullptr) return ok_status();
  return others->send_to_all(FrameKind::kRestart, std::array{std::as_bytes(std::span(&epoch, 1))});
}

Status Communicator::status() const {
  const std::lock_guard lock(group_->mutex);
  return group_->ended;
}

void Communicator::raise_when_ended(std::atomic<std::uint32_t>* flag) {
  const std::lock_guard lock(group_->mutex);
  group_->flags.push_back(flag);
  if (!group_->ended.ok()) flag->store(1);
}

void Communicator::take_back(std::atomic<std::uint32_t>* flag) {
  const std::lock_guard lock(group_->mutex);
  std::erase(group_->flags, flag);
}

Status Communicator::enter(std::string_view call, const TensorView& x) {
  std::unique_lock lock(group_->mutex);
  if (!group_->ended.ok()) return group_->ended;
  group_->tensors[static_cast<std::size_t>(rank_)] = x;
  group_->calls[static_cast<std::size_t>(rank_)] = call;
  const std::int64_t generation = group_->generation;
  if (group_->arrive()) return ok_status();
  const auto moved = [&] { return group_->generation != generation || !group_->ended.ok(); };
  if (!group_->moved.wait_for(lock, group_->limit, moved)) {
    const auto begin = group_->calls.begin() + group_->first;
    const auto late = std::find(begin, begin + group_->here, std::string_view());
    const Status why = cancelled(fmt::format("rank {} of {} did not come to {} within {} s",
                                             place_of(*this, late - group_->calls.begin()), places(), call,
                                             static_cast<double>(group_->limit.count()) / 1000));
    lock.unlock();
    end_group(why);
    lock.lock();
  }
  // Once all ranks have arrived all of them continue, even if one aborts right after.
  return group_->generation != generation ? ok_status() : group_->ended;
}

void Communicator::leave() {
  // abort() does not end this wait: all ranks are between enter() and here and wait for nothing else, and no rank may
  // free its memory while another still works on it.
  group_->meet(/*ends_call=*/true);
}

// Of the ranks that are seen here: all, or where node 0 adds up, those of this node.
Status Communicator::check_agreement() const {
  const auto base = static_cast<std::size_t>(group_->follows() ? group_->first : 0);
  const auto end = static_cast<std::size_t>(group_->follows() ? group_->first + group_->here : group_->size());
  const TensorView& first = group_->tensors[base];
  for (std::size_t r = base + 1; r < end; ++r) {
    const TensorView& other = group_->tensors[r];
    if (group_->calls[r] == group_->calls[base] && other.dtype == first.dtype && other.rank == first.rank &&
        other.dims == first.dims)
      continue;
    return internal_error(fmt::format("ranks disagree: rank {} is in {} with {} elements {}, rank {} in {} with {} {}",
                                      place_of(*this, static_cast<std::int64_t>(base)), group_->calls[base],
                                      first.elements(), ir::dtype_name(first.dtype),
                                      place_of(*this, static_cast<std::int64_t>(r)), group_->calls[r], other.elements(),
                                      ir::dtype_name(other.dtype)));
  }
  return ok_status();
}

// The first rank's part, while the others of this process wait.
Status Communicator::exchange(std::string_view call, const TensorView& result) {
  NodeExchange& nodes = *group_->nodes;
  group_->result = result;
  if (!nodes.leads()) TRY(check_agreement());
  return nodes.leads() ? nodes.collect(group_->tensors, group_->calls)
                       : nodes.trade(call, group_->tensors_here(), result);
}

// The other ranks of a node that does not add up itself take what its first one got.
Status Communicator::follow(const TensorView& result) {
  if (!is_first_here() && result.bytes() > 0)
    std::memcpy(result.data.raw(), group_->result.data.raw(), static_cast<std::size_t>(result.bytes()));
  leave();
  return ok_status();
}

template <class Body>
Status Communicator::together(std::string_view call, const TensorView& x, const TensorView& result, const Body& body) {
  TRY(enter(call, x));
  if (group_->nodes != nullptr) {
    if (is_first_here()) group_->exchanged = exchange(call, result);
    group_->meet(/*ends_call=*/false);
    if (Status failed = group_->exchanged; !failed.ok()) {
      end_group(failed);
      return failed;
    }
    if (group_->follows()) return follow(result);
  }
  const Status agreed = check_agreement();
  if (agreed.ok()) body();
  leave();
  if (!agreed.ok()) abort(agreed.message());
  if (!agreed.ok() || group_->nodes == nullptr || !is_first_here()) return agreed;
  return group_->nodes->spread(result);
}

Status Communicator::all_reduce(const TensorView& x) {
  // A rank adds up its share of the elements and writes it to every rank here: no two ranks touch the same element.
  const std::int64_t place = rank_ - group_->first;
  const std::int64_t begin = x.elements() * place / group_->here;
  const std::int64_t end = x.elements() * (place + 1) / group_->here;
  return dispatch_dtype(x.dtype, "all_reduce", [&]<class T>() -> Status {
    return together("all_reduce", x, x, [&] { reduce_range<T>(group_->tensors, group_->tensors_here(), begin, end); });
  });
}

Status Communicator::all_gather(const TensorView& x, const TensorView& y) {
  const std::size_t row_bytes = static_cast<std::size_t>(x.dim(1)) * ir::dtype_size(x.dtype);
  return together("all_gather", x, y, [&] {
    if (row_bytes == 0) return;
    std::byte* to = y.data.raw();
    for (std::size_t row = 0; row < static_cast<std::size_t>(x.dim(0)); ++row)
      for (const TensorView& tensor : group_->tensors) {
        std::memcpy(to, tensor.data.raw() + row * row_bytes, row_bytes);
        to += row_bytes;
      }
  });
}

Status Communicator::all_gather_rows(const TensorView& x, const TensorView& y) {
  if (spans_processes()) return unimplemented("all_gather_rows between processes; ranks of one process are accepted");
  const auto bytes = static_cast<std::size_t>(x.bytes());
  return together("all_gather_rows", x, y, [&] {
    if (bytes == 0) return;
    std::byte* to = y.data.raw();
    for (const TensorView& tensor : group_->tensors) {
      std::memcpy(to, tensor.data.raw(), bytes);
      to += bytes;
    }
  });
}

Status Communicator::reduce_scatter(const TensorView& x, const TensorView& y) {
  if (spans_processes()) return unimplemented("reduce_scatter between processes; ranks of one process are accepted");
  const std::int64_t begin = rank_ * y.elements();
  return dispatch_dtype(x.dtype, "reduce_scatter", [&]<class T>() -> Status {
    return together("reduce_scatter", x, y,
                    [&] { reduce_range<T>(group_->tensors, std::span(&y, 1), begin, begin + y.elements(), begin); });
  });
}

}  // namespace tessera
