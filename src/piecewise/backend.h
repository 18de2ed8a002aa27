// One part of a stitching graph with its entries by bucket (E2): bound once for a bucket, then
// enqueued, or captured once and replayed.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "tessera/base/status.h"
#include "tessera/compile/program.h"
#include "tessera/device/device.h"
#include "tessera/piecewise/stitching.h"

namespace tessera {

class PartBackend {
 public:
  PartBackend(Part::Kind kind, std::string name, Program program)
      : kind_(kind), name_(std::move(name)), program_(std::move(program)) {}

  const Program& program() const { return program_; }
  const std::string& name() const { return name_; }
  Part::Kind kind() const { return kind_; }
  // The bucket's kernels, to be run one by one; null where it is not bound.
  const BoundProgram* bound(const ir::Bucket& bucket) const;

  // Makes the bucket's entry; an entry that exists is replaced and its graph dropped.
  Status bind(const BindTarget& target);
  void drop(const ir::Bucket& bucket) { entries_.erase(bucket); }
  void drop_graph(const ir::Bucket& bucket);  // and stays bound

  // Runs the kernels now, or records them where the stream records. Precondition: bound.
  Status enqueue(const ir::Bucket& bucket, Stream& stream) const;
  // Records the piece into a graph; nothing runs. Split ops and pieces without kernels are left as they are.
  Status capture(const ir::Bucket& bucket, Stream& stream);
  // Launches the captured graph; a part without one is enqueued.
  Status replay(const ir::Bucket& bucket, Stream& stream) const;

  // Whether capture() makes a graph.
  bool recordable() const { return kind_ == Part::Kind::kPiece && !program_.steps().empty(); }
  bool captured(const ir::Bucket& bucket) const;
  GraphStats graph_stats() const;  // of all entries
  GraphStats graph_stats(const ir::Bucket& bucket) const;

 private:
  struct Entry {
    std::unique_ptr<BoundProgram> bound;
    std::unique_ptr<RecordedGraph> graph;
  };
  const Entry* find(const ir::Bucket& bucket) const;

  Part::Kind kind_;
  std::string name_;
  Program program_;
  std::map<ir::Bucket, Entry> entries_;
};

}  // namespace tessera
