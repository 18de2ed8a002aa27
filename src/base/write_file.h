// Writes whole files, in place or by atomic replacement.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// Writes a file in place, so `path` may also be a pipe or a device. The old content of a file is dropped. Errors name
// the file. After an error the file may hold a part of the text.
Status write_file(const std::string& path, std::string_view text);

// Replaces the file at `path` atomically. A reader sees the old or the new content, never a part. The content is on
// disk when the call returns. After an error the old file is unchanged and no temporary file is left. The new content
// is first written to "<path>.<process>-<number>.new". If the process is killed before the replacement, that new file
// remains.
Status replace_file(const std::filesystem::path& path, std::string_view content);
// Replaces the file or link at `path` by a symbolic link to `target`, also atomically.
Status replace_link(const std::filesystem::path& path, const std::filesystem::path& target);

// Renames a file. Replaces what is at `to`.
Status rename_file(const std::filesystem::path& from, const std::filesystem::path& to);
// Creates the folder and its parents. An existing folder is no error.
Status make_folder(const std::filesystem::path& path);

}  // namespace tessera
