// Writes whole files, in place or by atomic replacement.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// Writes in place, so `path` may be a pipe or a device. Afterwards the file holds only `text`. An error names the file,
// which may then hold a part of the text.
Status write_file(const std::string& path, std::string_view text);

// Replaces the file at `path` by renaming. A reader sees the old content or the new one, never a part. The content is
// on disk when it returns. After an error the old file is unchanged and nothing is left beside it. The new content is
// written to "<path>.<process>-<number>.new" first; a process that is killed meanwhile leaves that file.
Status replace_file(const std::filesystem::path& path, std::string_view content);
// Replaces what is at `path` by a symbolic link to `target`, in the same way.
Status replace_link(const std::filesystem::path& path, const std::filesystem::path& target);

// Renames a file. Replaces what is at `to`.
Status rename_file(const std::filesystem::path& from, const std::filesystem::path& to);
// Creates the folder and its parents. An existing folder is no error.
Status make_folder(const std::filesystem::path& path);

}  // namespace tessera
