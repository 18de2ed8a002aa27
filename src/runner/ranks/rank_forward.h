// Packs a forward into a message between ranks: everything that rank 0's runner was asked for, and its decision.
//
// Page tables are sent as differences. Both ends remember the tables of the last forward by number (PageTable); a table
// that was not in that forward is sent whole.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/net/message.h"
#include "tessera/runner/dispatch/dispatch.h"
#include "tessera/runner/forward_inputs.h"

namespace tessera {

// Rank 0's end of the stream of forwards. Allocates nothing for batches no larger than earlier ones.
class ForwardPacker {
 public:
  void pack(const ForwardInputs& inputs, const Decision& decision, MessageWriter& to);

 private:
  struct Sent {
    PageTableNumber number{};
    std::size_t length = 0;  // length of the table as sent; 0: a row of the current batch has used it
  };
  struct Group {
    std::vector<Sent> last;
    std::vector<Sent> next;
  };
  static void pack_tables(std::span<const PageTable> tables, Group& group, MessageWriter& to);

  std::vector<Group> groups_;
};

// The receiving end. Its contents are valid until the next unpack(); embedding writes are valid as long as the message.
class ReceivedForward {
 public:
  // Unpacks the next forward. After an error the two ends may disagree on page tables, so the group cannot continue.
  Status unpack(MessageReader& from);

  const Decision& decision() const { return decision_; }
  bool wants_logits() const { return wants_logits_; }
  bool wants_hidden() const { return wants_hidden_; }
  // `logits` and `hidden_states` are the caller's buffers for the outputs that are wanted.
  ForwardInputs inputs(std::span<float> logits, std::span<float> hidden_states) const;

 private:
  struct Row {
    PageTableNumber number{};
    std::int64_t first_held = 0;
    std::vector<PageId> pages;
  };
  struct Group {
    std::vector<Row> last;
    std::vector<Row> next;
    std::size_t rows = 0;  // number of entries of `last` in use
  };
  Status unpack_decision(MessageReader& from);
  Status unpack_batch(MessageReader& from);
  Status unpack_tables(MessageReader& from, Group& group, std::vector<PageTable>& tables);
  static Status unpack_table(MessageReader& from, Group& group, Row& row);

  Decision decision_;
  bool wants_logits_ = false;
  bool wants_hidden_ = false;
  bool force_eager_ = false;
  bool replay_graphs_ = true;
  bool has_edits_ = false;
  int top_logprobs_ = 0;
  ForwardBatch batch_;
  RopeAxes rope_positions_;
  std::vector<SampleRow> sampling_;
  LogitEdits edits_;
  std::vector<TokenId> logprob_targets_;
  std::vector<std::int32_t> hidden_rows_;
  std::vector<Group> groups_;
};

}  // namespace tessera
