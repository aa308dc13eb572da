// What the sink remembers: names, sizes and MD5s, and the content of small records only.
#pragma once

#include <ctime>

#include <map>
#include <string>

#include "http.h"

// Records and lists of blocks are read again by clients; the datasets' files are not.
constexpr uint64_t KEPT_BODY_BYTES = 64 << 10;
constexpr size_t PAGE_NAMES = 5000;

struct Answer {
    int status;
    std::string headers;  // whole lines
    std::string body;
    uint64_t head_bytes = 0;  // the Content-Length that HEAD tells
};

struct StoredBlob {
    uint64_t bytes = 0;
    std::string md5;  // base64, as the client gave it
    std::string content;
    uint64_t change = 0;
    time_t modified = 0;
};

inline std::string http_date(time_t moment) {
    char text[64];
    tm parts{};
    gmtime_r(&moment, &parts);
    strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    return text;
}

inline std::string xml_text(const std::string& text) {
    std::string out;
    for (char letter : text) {
        if (letter == '&') out += "&amp;";
        else if (letter == '<') out += "&lt;";
        else if (letter == '>') out += "&gt;";
        else out.push_back(letter);
    }
    return out;
}

inline Answer refusal(int status, const std::string& code) {
    return {status, "x-ms-error-code: " + code + "\r\nContent-Type: application/xml\r\n",
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>" + code +
                "</Code><Message>" + code + "</Message></Error>"};
}

class Container {
  public:
    // `body` holds what was kept of the request's body.
    Answer answer(const Request& request, const std::string& body) {
        size_t account_end = request.path.find('/', 1);
        size_t name_start = account_end == std::string::npos
                                ? std::string::npos
                                : request.path.find('/', account_end + 1);
        std::string name =
            name_start == std::string::npos ? "" : request.path.substr(name_start + 1);
        std::string what = request.argument("comp");
        if (name.empty()) return what == "list" ? list(request) : Answer{200, "", ""};
        if (request.method == "PUT") {
            if (what == "block") return put_block(name, request);
            if (what == "blocklist") return commit(name, request, body);
            if (what.empty()) return put(name, request, body);
        }
        if (request.method == "GET" && what == "blocklist") return blocks(name);
        if (request.method == "GET" || request.method == "HEAD") return get(name, request);
        if (request.method == "DELETE") {
            return blobs_.erase(name) ? Answer{202, "", ""} : refusal(404, "BlobNotFound");
        }
        return refusal(400, "UnsupportedHere");
    }

  private:
    Answer put(const std::string& name, const Request& request, const std::string& body) {
        if (request.header("if-none-match") == "*" && blobs_.count(name)) {
            return refusal(409, "BlobAlreadyExists");
        }
        std::string md5 = request.header("x-ms-blob-content-md5");
        return store(name, request.body_bytes, md5.empty() ? request.header("content-md5") : md5,
                     body);
    }

    Answer put_block(const std::string& name, const Request& request) {
        staged_[name][request.argument("blockid")] = request.body_bytes;
        return {201, "", ""};
    }

    Answer commit(const std::string& name, const Request& request, const std::string& body) {
        uint64_t bytes = 0;
        auto& staged = staged_[name];
        for (size_t at = body.find("<Latest>"); at != std::string::npos;
             at = body.find("<Latest>", at + 1)) {
            size_t end = body.find('<', at + 8);
            auto block = staged.find(body.substr(at + 8, end - at - 8));
            if (block == staged.end()) return refusal(400, "InvalidBlockList");
            bytes += block->second;
        }
        staged_.erase(name);
        store(name, bytes, request.header("x-ms-blob-content-md5"), "");
        // As Azure: the MD5 in this answer is that of the list, not of the blob.
        StoredBlob unsaid = blobs_[name];
        unsaid.md5 = request.header("content-md5");
        return {201, properties(unsaid), ""};
    }

    Answer store(const std::string& name, uint64_t bytes, std::string md5,
                 const std::string& body) {
        StoredBlob& blob = blobs_[name];
        blob = {bytes, std::move(md5), bytes == body.size() ? body : "", ++changes_, time(nullptr)};
        return {201, properties(blob), ""};
    }

    static std::string properties(const StoredBlob& blob) {
        std::string lines = "ETag: \"" + std::to_string(blob.change) +
                            "\"\r\nLast-Modified: " + http_date(blob.modified) + "\r\n";
        if (!blob.md5.empty()) lines += "Content-MD5: " + blob.md5 + "\r\n";
        return lines;
    }

    Answer blocks(const std::string& name) const {
        std::string found;
        auto staged = staged_.find(name);
        if (staged == staged_.end() && !blobs_.count(name)) return refusal(404, "BlobNotFound");
        if (staged != staged_.end()) {
            for (auto& [id, bytes] : staged->second) {
                found += "<Block><Name>" + id + "</Name><Size>" + std::to_string(bytes) +
                         "</Size></Block>";
            }
        }
        return {200, "Content-Type: application/xml\r\n",
                "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList><CommittedBlocks />"
                "<UncommittedBlocks>" + found + "</UncommittedBlocks></BlockList>"};
    }

    Answer get(const std::string& name, const Request& request) const {
        auto found = blobs_.find(name);
        if (found == blobs_.end()) return refusal(404, "BlobNotFound");
        const StoredBlob& blob = found->second;
        std::string lines = properties(blob) + "x-ms-blob-type: BlockBlob\r\n";
        if (request.method == "HEAD") return {200, lines, "", blob.bytes};
        if (blob.content.size() != blob.bytes) return refusal(409, "ContentNotKeptHere");
        if (request.header("x-ms-range").empty() && request.header("range").empty()) {
            return {200, lines, blob.content};
        }
        // Records are smaller than any range that clients ask for first.
        if (blob.bytes == 0) return refusal(416, "InvalidRange");
        std::string last = std::to_string(blob.bytes - 1);
        lines += "Content-Range: bytes 0-" + last + "/" + std::to_string(blob.bytes) + "\r\n";
        return {206, lines, blob.content};
    }

    Answer list(const Request& request) const {
        std::string prefix = request.argument("prefix");
        std::string marker = request.argument("marker");
        std::string asked = request.argument("maxresults");
        size_t most = asked.empty() ? PAGE_NAMES : std::min(PAGE_NAMES, size_t(std::stoul(asked)));
        std::string body =
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Prefix>" +
            xml_text(prefix) + "</Prefix><Blobs>";
        auto at = blobs_.lower_bound(std::max(prefix, marker));
        size_t names = 0;
        for (; at != blobs_.end() && names < most; ++at, ++names) {
            if (at->first.compare(0, prefix.size(), prefix) != 0) break;
            const StoredBlob& blob = at->second;
            std::string date = http_date(blob.modified);
            body += "<Blob><Name>" + xml_text(at->first) + "</Name><Properties><Creation-Time>" +
                    date + "</Creation-Time><Last-Modified>" + date + "</Last-Modified><Etag>" +
                    std::to_string(blob.change) + "</Etag><Content-Length>" +
                    std::to_string(blob.bytes) +
                    "</Content-Length><Content-Type>application/octet-stream</Content-Type>" +
                    (blob.md5.empty() ? "" : "<Content-MD5>" + blob.md5 + "</Content-MD5>") +
                    "<BlobType>BlockBlob</BlobType></Properties></Blob>";
        }
        bool more = at != blobs_.end() && at->first.compare(0, prefix.size(), prefix) == 0;
        body += "</Blobs><NextMarker>" + (more ? xml_text(at->first) : "") +
                "</NextMarker></EnumerationResults>";
        return {200, "Content-Type: application/xml\r\n", body};
    }

    std::map<std::string, StoredBlob> blobs_;
    std::map<std::string, std::map<std::string, uint64_t>> staged_;
    uint64_t changes_ = 0;
};
