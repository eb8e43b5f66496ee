-module(sensors_upload).
-export([save/1]).
save(N) ->
    File = filename:join(os:getenv("SPOOL"), "upload" ++ integer_to_list(N rem 50)),
    ok = file:write_file(File, rand:bytes(20000), [raw]),
    {ok, _} = file:read_file_info(File, [raw]),
    sensors_export:saved().
