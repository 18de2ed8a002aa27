// Chooses the drafts of a step (engine/drafts), and records which are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/drafts/draft_counts.h"
#include "tessera/engine/schedule/scheduled_batch.h"
#include "tessera/engine/schedule/sequence.h"

namespace tessera {

using Sequences = std::deque<std::unique_ptr<Sequence>>;

// Returns how many pages the running sequences are expected to take soon from cache group `g`.
std::int64_t promised_pages(const Sequences& running, const CacheManager& cache, std::size_t g);

// A sequence of a step, and how many of its tokens the step computes.
struct ChosenTokens {
  Sequence* sequence = nullptr;
  std::int64_t count = 0;
  std::int64_t checkpoint = 0;  // PromptCut::checkpoint
};

// Chooses the drafts of a step. Drafts never postpone a decode, never evict a page, and never divide prompts that the
// step would compute as a whole. If prompts fill the step, drafts take at most a quarter of the prompts' rows. The
// object reuses its memory from step to step.
class StepDrafts {
 public:
  // The work of a step without drafts, and the room that is left for drafts.
  struct Step {
    const Sequences& running;
    std::int64_t most_rows;    // maximum number of sampled rows; every running sequence has one of them reserved
    std::int64_t budget;       // tokens that may be computed in addition to the decodes
    std::int64_t prompt_rows;  // tokens of prompts that the step would compute without drafts
    bool is_judged = false;    // whether the drafts' saving is compared with the step's wait (DraftProfit)
  };

  explicit StepDrafts(DraftCosts costs) : costs_(std::move(costs)) {}

  struct Drafted {
    std::int64_t count = 0;  // drafts of all sequences
    // DraftCounts::saving(). In a judged step, gained_ms and taken_ms are those of a step in which the sequences that
    // await trials (Sequence::awaits_trials) draft too.
    std::optional<DraftSaving> saving = {};
  };
  // Sets the drafts of each sequence that decodes in this step, possibly none, and takes pages for them.
  Drafted choose(const Step& step, std::span<const ChosenTokens> decoding, CacheManager& cache);

 private:
  void imagine_all(std::span<const ChosenTokens> decoding, const DraftCounts::Step& step, DraftSaving& saving);

  DraftCosts costs_;
  DraftCounts counts_;
  std::vector<DraftOffer> offers_;  // one offer for each decoding sequence
};

// Returns how many of the entry's drafts equal the tokens that were sampled from the rows before them, up to the first
// draft that does not. `sampled` has the forward's sampled tokens. Precondition: no draft of the entry was kept yet.
std::int64_t kept_drafts(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry,
                         std::span<const TokenId> sampled);

// Records that the entry's next draft is kept, because it equals the token sampled from the row before it. Moves the
// entry to the draft's row, which gives the next token. With `has_states`, also records that the next forward must
// advance the model's recurrent states over the draft, because the states do not include it yet. Precondition:
// Scheduler::settle() was called with the sampled token.
void keep_draft(ScheduledBatch::Entry& entry, bool has_states);

}  // namespace tessera
