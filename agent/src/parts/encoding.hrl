%% Terms as data: times, names, pids and texts of the protocol. Every name and text is cut to a bounded length.

now_ns() -> erlang:monotonic_time(nanosecond).

now_ms() -> erlang:monotonic_time(millisecond).

%% Names and strings as UTF-8, cut.
bin(Atom) when is_atom(Atom) -> cut(atom_to_binary(Atom, utf8), ?NAME_BYTES);
bin(Binary) when is_binary(Binary) -> cut(Binary, ?NAME_BYTES);
bin(Text) when is_list(Text) ->
    case catch unicode:characters_to_binary(Text) of
        Binary when is_binary(Binary) -> cut(Binary, ?TEXT_BYTES);
        _ -> <<"?">>
    end;
bin(_) -> <<"?">>.

id(Pid) when is_pid(Pid) -> list_to_binary(pid_to_list(Pid));
id(Port) when is_port(Port) -> list_to_binary(erlang:port_to_list(Port));
id(Ref) when is_reference(Ref) -> list_to_binary(ref_to_list(Ref));
id(Atom) when is_atom(Atom) -> bin(Atom);
id(_) -> <<>>.

mfa({Module, Function, Arity}) when is_atom(Module), is_atom(Function), is_integer(Arity) ->
    {bin(Module), bin(Function), Arity};
mfa({Module, Function, Args}) when is_atom(Module), is_atom(Function), is_list(Args) ->
    {bin(Module), bin(Function), case catch length(Args) of N when is_integer(N) -> N; _ -> 0 end};
mfa(_) -> undefined.

%% Any term as a short text: strings unchanged, other terms as ~p prints them.
text(Term) ->
    try
        case is_binary(Term) of
            true -> unicode:characters_to_binary(cut(Term, ?TEXT_BYTES));
            false -> is_list(Term) andalso io_lib:printable_unicode_list(Term) andalso bin(Term)
        end
    of
        Text when is_binary(Text) -> Text;
        _ -> print(Term)
    catch
        _:_ -> <<"?">>
    end.

print(Term) ->
    cut(unicode:characters_to_binary(io_lib:format("~0tP", [Term, 20], [{chars_limit, 400}])), ?TEXT_BYTES).

%% Cuts to at most Max bytes, between characters.
cut(Binary, Max) when byte_size(Binary) =< Max -> Binary;
cut(Binary, Max) ->
    case binary:at(Binary, Max) of
        Continuation when Continuation band 2#11000000 =:= 2#10000000 -> cut_before(Binary, Max - 1);
        _ -> binary:part(Binary, 0, Max)
    end.

cut_before(Binary, At) when At > 0 ->
    case binary:at(Binary, At) of
        Continuation when Continuation band 2#11000000 =:= 2#10000000 -> cut_before(Binary, At - 1);
        _ -> binary:part(Binary, 0, At)
    end;
cut_before(_, _) -> <<>>.
