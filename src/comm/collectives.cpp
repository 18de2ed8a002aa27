// Implements the collectives on hosts. The ranks of one process meet at barriers in each call, and processes exchange
// tensors over connections.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "tessera/base/cpu_clones.h"
#include "tessera/base/float16.h"
#include "tessera/comm/group.h"
#include "tessera/ir/storage_type.h"

namespace tessera {
namespace {

// Converts a rank's number within its stage to its number among the ranks of all stages. Errors name a rank by its
// number among the ranks of all stages.
std::int64_t place_of(const Communicator& communicator, std::int64_t rank) {
  return communicator.world_rank() - communicator.rank() + rank;
}

// For each index i in [begin, end), adds the elements of all `tensors` at i, in the order of the tensors. Writes the
// sum to index i - origin of each tensor in `to`.
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

bool Communicator::is_first_here() const { return rank_ == group_->first; }

Status Communicator::enter(std::string_view call, const TensorView& x) {
  std::unique_lock lock(group_->mutex);
  if (!group_->ended.ok()) return group_->ended;
  group_->tensors[static_cast<std::size_t>(rank_)] = x;
  group_->calls[static_cast<std::size_t>(rank_)] = call;
  const std::int64_t generation = group_->generation;
  if (group_->arrive()) return ok_status();
  const auto moved = [&] { return group_->generation != generation || !group_->ended.ok(); };
  if (!group_->moved.wait_for(lock, limit_, moved)) {
    const auto begin = group_->calls.begin() + group_->first;
    const auto late = std::find(begin, begin + group_->here, std::string_view());
    const Status why = cancelled(fmt::format("rank {} of {} did not come to {} within {} s",
                                             place_of(*this, late - group_->calls.begin()), world_size(), call,
                                             static_cast<double>(limit_.count()) / 1000));
    lock.unlock();
    end_group(why);
    lock.lock();
  }
  // If all ranks have arrived, the call continues, even if a rank has aborted the group since then.
  return group_->generation != generation ? ok_status() : group_->ended;
}

void Communicator::leave() {
  // abort() must not interrupt this wait, because no rank may free its memory while another rank still works on it. All
  // earlier waits of a call have a limit, so every rank that has entered the call gets here. This wait therefore always
  // ends.
  group_->meet(/*ends_call=*/true);
}

// Checks that the ranks are in the same call with tensors of equal type and shape. Node 0 compares all ranks. Any other
// node compares only its own ranks.
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

// Exchanges data with the other nodes. Only the first rank of this process calls it, while the process's other ranks
// wait.
Status Communicator::exchange(std::string_view call, const TensorView& result, Share share) {
  NodeExchange& nodes = *group_->nodes;
  if (!nodes.leads()) TRY(check_agreement());
  group_->result = share == Share::kWhole ? result : rows_of_all(result);
  return nodes.leads() ? nodes.collect(group_->tensors, group_->calls, limit_)
                       : nodes.trade(call, group_->tensors_here(), group_->result, limit_);
}

// Returns a buffer with one tensor like `own` for each rank. On node 0 the buffer is for all ranks. On any other node
// it is only for the ranks of this process.
TensorView Communicator::rows_of_all(const TensorView& own) const {
  const std::int64_t ranks = group_->follows() ? group_->here : group_->size();
  group_->rows.resize(static_cast<std::size_t>(own.bytes() * ranks));
  group_->most_rows = std::max(group_->most_rows, group_->rows.size());
  return {.data = {group_->rows.data()}, .dtype = own.dtype, .rank = 2, .dims = {ranks, own.elements()}};
}

// On a node other than 0, copies this rank's share of the result, which this process's first rank got from node 0.
Status Communicator::follow(const TensorView& result, Share share) {
  const std::int64_t begin = share == Share::kRows ? (rank_ - group_->first) * result.bytes() : 0;
  if (result.bytes() > 0 && result.data != group_->result.data)
    std::memcpy(result.data.raw(), group_->result.data.raw() + begin, static_cast<std::size_t>(result.bytes()));
  leave();
  return ok_status();
}

template <class Body>
Status Communicator::together(std::string_view call, const TensorView& x, const TensorView& result, Share share,
                              const Body& body) {
  TRY(enter(call, x));
  if (group_->nodes != nullptr) {
    if (is_first_here()) group_->exchanged = exchange(call, result, share);
    group_->meet(/*ends_call=*/false);
    if (Status failed = group_->exchanged; !failed.ok()) {
      end_group(failed);
      return failed;
    }
    if (group_->follows()) return follow(result, share);
  }
  Status agreed = check_agreement();
  if (agreed.ok()) body();
  leave();
  if (!agreed.ok()) abort(agreed.message());
  if (!agreed.ok() || group_->nodes == nullptr || !is_first_here()) return agreed;
  return share == Share::kWhole ? group_->nodes->spread(result) : group_->nodes->spread_rows(group_->result);
}

Status Communicator::all_reduce(const TensorView& x) {
  // Each rank takes a range of the elements, adds this range over the tensors of all ranks, and writes the sums to the
  // tensors of all ranks of this process. No two ranks write the same element.
  const std::int64_t place = rank_ - group_->first;
  const std::int64_t begin = x.elements() * place / group_->here;
  const std::int64_t end = x.elements() * (place + 1) / group_->here;
  return dispatch_dtype(x.dtype, "all_reduce", [&]<class T>() -> Status {
    return together("all_reduce", x, x, Share::kWhole,
                    [&] { reduce_range<T>(group_->tensors, group_->tensors_here(), begin, end); });
  });
}

Status Communicator::all_gather(const TensorView& x, const TensorView& y) {
  const std::size_t row_bytes = static_cast<std::size_t>(x.dim(1)) * ir::dtype_size(x.dtype);
  return together("all_gather", x, y, Share::kWhole, [&] {
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
  const auto bytes = static_cast<std::size_t>(x.bytes());
  return together("all_gather_rows", x, y, Share::kWhole, [&] {
    if (bytes == 0) return;
    std::byte* to = y.data.raw();
    for (const TensorView& tensor : group_->tensors) {
      std::memcpy(to, tensor.data.raw(), bytes);
      to += bytes;
    }
  });
}

Status Communicator::reduce_scatter(const TensorView& x, const TensorView& y) {
  const std::int64_t rows = y.elements();
  return dispatch_dtype(x.dtype, "reduce_scatter", [&]<class T>() -> Status {
    return together("reduce_scatter", x, y, Share::kRows, [&] {
      reduce_range<T>(group_->tensors, std::span(&y, 1), rank_ * rows, (rank_ + 1) * rows, rank_ * rows);
      // The ranks of node 0 also compute the sums for the ranks of other nodes. Each rank of node 0 does a part of this
      // work.
      for (int other = rank_ + group_->here; other < group_->size(); other += group_->here)
        reduce_range<T>(group_->tensors, std::span(&group_->result, 1), other * rows, (other + 1) * rows);
    });
  });
}

}  // namespace tessera
