// Makes the random sequences of soak(), and chooses the tokens of the next batch and their pages in each cache group.
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

// An image. Sequences that use it read its embedding rows.
struct SoakImage {
  std::int64_t first_row = 0;
  std::int64_t tokens = 0;  // if 0, the slot is empty
  std::int64_t users = 0;   // number of sequences that use the image
};

class SoakWorld {
 public:
  // `groups` are the model's cache groups, which must outlive this object. Each group has at least one page in addition
  // to page 0, and a state group has at least two slots in addition to slot 0. `row_values` is the number of values of
  // an embedding.
  SoakWorld(const RunnerOptions& options, std::span<const ir::CacheGroup> groups, std::int64_t vocab_size,
            std::int64_t row_values, std::uint64_t seed);

  // Lets sequences use images of `gallery`, which must outlive this object. An image keeps its rows while a sequence
  // uses it. Embeddings that are not images use rows below `most_embeddings`.
  void use_images(std::vector<SoakImage>& gallery, std::int64_t most_embeddings) {
    gallery_ = &gallery;
    most_embeddings_ = most_embeddings;
  }

  // Returns the next batch, which is never empty and is valid until the next call. Afterwards its tokens count as
  // computed. The batch copies the states of its sequences to spare slots before it changes them.
  const ForwardBatch& next();
  // Returns the batch that next() returned last, so that it can run again. In the new run, the batch first restores the
  // states that the earlier run saved.
  const ForwardBatch& again();
  // Returns the positions of the batch.
  const RopeAxes& rope_positions() const { return rope_positions_; }
  // A page that a sequence gave back in next(). Another sequence may have taken it since then.
  struct GroupPage {
    std::size_t group = 0;
    PageId page;
  };
  const std::vector<GroupPage>& given_back() const { return given_back_; }

  std::int64_t cancelled() const { return cancelled_; }
  std::int64_t finished() const { return finished_; }
  std::mt19937_64& random() { return random_; }
  // Returns a uniform number in [0, below).
  std::int64_t draw(std::int64_t below);
  // Returns a log-uniform number in [1, most].
  std::int64_t log_uniform(std::int64_t most);
  bool chance(double probability) { return std::uniform_real_distribution<double>(0, 1)(random_) < probability; }

 private:
  // A sequence's page table in one group. The entries below index `first` are page 0, in place of pages that the window
  // no longer reaches.
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
    std::int64_t length;    // number of tokens in the whole sequence
    std::int64_t prompt;    // number of tokens in the prompt, which is computed in chunks
    std::int64_t computed;  // number of tokens computed so far
    bool embedded;          // whether some tokens use an embedding instead of an id
    std::vector<PlacedImage> images;
    std::vector<Held> held;  // one page table for each cache group
  };

  // Returns the number of pages that an admitted sequence of `length` tokens is guaranteed to get. These are all of its
  // pages or, in a window group, the pages of one window and one more page.
  std::int64_t promised(std::size_t group, std::int64_t length) const;
  // Returns the number of pages that sequences can use. Page 0 belongs to no sequence, and each state needs a second
  // slot for its saved copy.
  std::int64_t usable(std::size_t group) const;
  bool has_room(std::int64_t length) const;
  void admit();
  void cancel_some();
  // Gives back, in each window group, the pages before the window of the sequence's next row.
  void leave_windows(Sequence& sequence);
  // Returns how many of the sequence's next `count` tokens fit into its pages and the free pages.
  std::int64_t fitting(const Sequence& sequence, std::int64_t count) const;
  // Adds the sequence's next `count` tokens to the batch. Precondition: these tokens fit (fitting()). If `turned`, the
  // tokens have three-dimensional positions.
  void append(Sequence& sequence, std::int64_t count, bool all_rows, bool turned);
  void append_pages(Sequence& sequence, std::int64_t length);
  void give_back(std::size_t group, PageId page);
  void end(std::size_t index);
  // Tries one to three random images: places each that fits in the prompt, after 0 to 7 more tokens of text.
  void place_images(Sequence& sequence);
  // Returns the embedding row of the token if it belongs to an image, and -1 otherwise.
  static std::int32_t image_row(const Sequence& sequence, std::int64_t token);

  const RunnerOptions& options_;
  std::span<const ir::CacheGroup> groups_;
  std::int64_t longest_;  // maximum number of tokens in a sequence; two sequences of this length always fit
  std::int64_t vocab_size_;
  std::int64_t row_values_;
  std::mt19937_64 random_;
  std::vector<std::vector<PageId>> free_;  // free pages of each cache group, taken from the back
  std::vector<Sequence> live_;
  ForwardBatch batch_;
  RopeAxes rope_positions_;
  std::vector<GroupPage> given_back_;
  std::vector<SoakImage>* gallery_ = nullptr;
  std::int64_t most_embeddings_ = INT64_MAX;
  std::vector<float> embeddings_;  // values of the embeddings that the batch writes
  std::int64_t cancelled_ = 0;
  std::int64_t finished_ = 0;
};

}  // namespace tessera
