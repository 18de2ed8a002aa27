// Whole files, written in place or replaced at once.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// Writes in place: `path` may be a pipe or a device. The file then holds `text` alone. The error names the file, which
// may then hold a part of the text.
Status write_file(const std::string& path, std::string_view text);

// Replaces the file at `path` by renaming: a reader sees the old content or the new one, never a part. On disk when it
// returns. After an error the old file is there as it was, and nothing is left beside it. The new content is written to
// "<path>.<process>-<number>.new" first; a process that is killed meanwhile leaves that file.
Status replace_file(const std::filesystem::path& path, std::string_view content);
// Puts a symbolic link to `target` there in the same way.
Status replace_link(const std::filesystem::path& path, const std::filesystem::path& target);

// Replaces what is at `to`.
Status rename_file(const std::filesystem::path& from, const std::filesystem::path& to);
// Creates the folder and those above it; one that exists is fine.
Status make_folder(const std::filesystem::path& path);

}  // namespace tessera
