%% Makes a copy of beamtune that behaves like another version. The agent's module gets another name of the same length, in the prebuilt
%% .beam files and elsewhere in the binary. The .beam files are gzipped; the extra field of the header (RFC 1952) fills the unused
%% bytes.
%% Usage: escript other_version.erl BINARY AGENT-FOLDER OUTPUT
main([Path, Prebuilt, Output]) ->
    {ok, Binary} = file:read_file(Path),
    {ok, Line} = file:read_file(filename:join(Prebuilt, "name")),
    Name = string:trim(Line),
    %% Replaces the digits by a word that already occurs in the name, so that the result compresses at least as well.
    Kept = byte_size(Name) - 8,
    Other = <<(binary:part(Name, 0, Kept))/binary, "beamtune">>,
    Beams = filelib:wildcard(filename:join(Prebuilt, "*.beam")),
    Patched = lists:foldl(fun(Beam, Acc) -> beam(Beam, Acc, Name, Other) end, Binary, Beams),
    ok = file:write_file(Output, replaced(Patched, Name, Other)),
    ok = file:change_mode(Output, 8#755).

beam(Path, Binary, Name, Other) ->
    {ok, Beam} = file:read_file(Path),
    Content = replaced(zlib:gunzip(Beam), Name, Other),
    Z = zlib:open(),
    ok = zlib:deflateInit(Z, best_compression, deflated, -15, 7, default),
    Deflated = iolist_to_binary(zlib:deflate(Z, Content, finish)),
    Extra = byte_size(Beam) - 10 - 2 - byte_size(Deflated) - 8,
    Extra >= 0 orelse error({too_large_by, -Extra, Path}),
    Packed = <<16#1f, 16#8b, 8, 4, 0:32, 0, 3, Extra:16/little, 0:(Extra * 8), Deflated/binary,
               (erlang:crc32(Content)):32/little, (byte_size(Content)):32/little>>,
    Content = zlib:gunzip(Packed),
    replaced(Binary, Beam, Packed).

replaced(Where, What, By) ->
    binary:match(Where, What) =/= nomatch orelse error({not_found, byte_size(What)}),
    binary:replace(Where, What, By, [global]).
