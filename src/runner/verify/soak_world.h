// The sequences of soak(): which tokens the next batch has, and in which pages of each cache group.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/memory/input_table.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

// An image whose rows sequences may read.
struct SoakImage {
  std::int64_t first_row = 0;
  std::int64_t tokens = 0;  // 0: there is none
  std::int64_t users = 0;   // sequences that have it
};

class SoakWorld {
 public:
  // `groups` of the model, each with a page at least beside page 0, a *state* group with two; they outlive this.
  // `row_values` are those of an embedding.
  SoakWorld(const RunnerOptions& options, std::span<const ir::CacheGroup> groups, std::int64_t vocab_size,
            std::int64_t row_values, std::uint64_t seed);

  // Sequences may have images of `gallery`, which outlives this; each keeps its rows while it has users. Other rows are
  // below `most_embeddings`.
  void use_images(std::vector<SoakImage>& gallery, std::int64_t most_embeddings) {
    gallery_ = &gallery;
    most_embeddings_ = most_embeddings;
  }

  // Never empty; valid until the next call. What it computes counts as computed from then on. It keeps the states of
  // its sequences before it changes them.
  const ForwardBatch& next();
  // The same batch once more, from the states that it began with.
  const ForwardBatch& again();
  // Of the batch.
  const RopeAxes& rope_positions() const { return rope_positions_; }
  // Pages that sequences gave back when next() was called; some may have been taken again.
  struct GroupPage {
    std::size_t group = 0;
    PageId page;
  };
  const std::vector<GroupPage>& given_back() const { return given_back_; }

  std::int64_t cancelled() const { return cancelled_; }
  std::int64_t finished() const { return finished_; }
  std::mt19937_64& random() { return random_; }
  // Uniform in [0, below).
  std::int64_t draw(std::int64_t below);
  // In [1, most].
  std::int64_t log_uniform(std::int64_t most);
  bool chance(double probability) { return std::uniform_real_distribution<double>(0, 1)(random_) < probability; }

 private:
  // A sequence's page table in one group: page 0 before `first`, which its window has left.
  struct Held {
    std::int64_t first = 0;
    std::vector<PageId> table;
    PageTableNumber number = new_page_table_number();
    std::int64_t end() const { return std::ssize(table); }
  };
  struct PlacedImage {
    std::int64_t first_token;
    SoakImage* image;
  };
  struct Sequence {
    std::int64_t length;    // tokens it comes to
    std::int64_t prompt;    // of them, computed in chunks
    std::int64_t computed;  // so far
    bool embedded;          // some of its tokens have an embedding instead
    std::vector<PlacedImage> images;
    std::vector<Held> held;  // [cache groups]
  };

  // Pages that a sequence of so many tokens is sure to get when it is admitted: all, or in a window group those of a
  // window and one to grow.
  std::int64_t promised(std::size_t group, std::int64_t length) const;
  // Page 0 is nobody's, and each state has a slot to be kept in.
  std::int64_t usable(std::size_t group) const;
  bool has_room(std::int64_t length) const;
  void admit();
  void cancel_some();
  // Gives back the pages before the windows of the sequence's next row.
  void leave_windows(Sequence& sequence);
  // How many of the next `count` tokens there are pages for.
  std::int64_t fitting(const Sequence& sequence, std::int64_t count) const;
  // Precondition: count fits. `turned`: its tokens have positions of their own in three dimensions.
  void append(Sequence& sequence, std::int64_t count, bool all_rows, bool turned);
  void append_pages(Sequence& sequence, std::int64_t length);
  void give_back(std::size_t group, PageId page);
  void end(std::size_t index);
  // Images into the prompt, one behind the other with text between, as far as they fit.
  void place_images(Sequence& sequence);
  // The row of the image that the token belongs to; -1: none.
  static std::int32_t image_row(const Sequence& sequence, std::int64_t token);

  const RunnerOptions& options_;
  std::span<const ir::CacheGroup> groups_;
  std::int64_t longest_;  // tokens of a sequence: there is always room for two
  std::int64_t vocab_size_;
  std::int64_t row_values_;
  std::mt19937_64 random_;
  std::vector<std::vector<PageId>> free_;  // [cache groups]: taken from the back
  std::vector<Sequence> live_;
  ForwardBatch batch_;
  RopeAxes rope_positions_;
  std::vector<GroupPage> given_back_;
  std::vector<SoakImage>* gallery_ = nullptr;
  std::int64_t most_embeddings_ = INT64_MAX;
  std::vector<float> embeddings_;  // of its tokens
  std::int64_t cancelled_ = 0;
  std::int64_t finished_ = 0;
};

}  // namespace tessera
