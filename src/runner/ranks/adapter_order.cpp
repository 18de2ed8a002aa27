#include "tessera/runner/ranks/adapter_order.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

namespace tessera {

void pack_shares(const Adapter& adapter, MessageWriter& to) {
  to.word(static_cast<std::int64_t>(adapter.num_shares()));
  for (std::size_t rank = 1; rank < adapter.num_shares(); ++rank) {
    const AdapterShare& share = adapter.share(rank);
    to.word(std::ssize(share.linears()));
    for (const AdapterLinearPart& part : share.linears()) {
      to.list(part.ranks);
      to.list(part.scales);
    }
    to.list(share.bytes());
  }
}

Result<AdapterShare> unpack_share(MessageReader& from, const AdapterLayout& layout, Device& device) {
  const std::int64_t shares = TRY(from.word("shares"));
  if (shares != static_cast<std::int64_t>(layout.num_ranks()))
    return data_loss(fmt::format("an adapter for {} ranks; there are {}", shares, layout.num_ranks()));
  std::optional<AdapterShare> own;
  for (std::size_t rank = 1; rank < layout.num_ranks(); ++rank) {
    const std::int64_t linears = TRY(from.choice("linears", INT32_MAX));
    std::vector<AdapterLinearPart> parts;
    for (std::int64_t i = 0; i < linears; ++i) {
      AdapterLinearPart& part = parts.emplace_back();
      TRY(from.list("ranks", part.ranks));
      TRY(from.list("scales", part.scales));
    }
    const std::span<const std::byte> bytes = TRY(from.list<std::byte>("bytes"));
    if (rank == layout.rank()) own = TRY(AdapterShare::copy(layout, std::move(parts), bytes, device));
  }
  TRY(from.finish());
  if (!own) return data_loss(fmt::format("an adapter without a share of rank {}", layout.rank()));
  return *std::move(own);
}

}  // namespace tessera
