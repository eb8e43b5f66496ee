$| = 1;
my %bad = map { $_ => 1 } qw(recieve seperate tommorow);
while (my $line = <STDIN>) {
    chomp $line;
    my $n = grep { $bad{$_} } split / /, $line;
    print "ok $n\n";
}
