# hyphenates the words; exceptions that the readers sent in come first
$| = 1;
my @exceptions = map { my $n = $_; join("", map { ("ba","de","fi","go","ku","la","me","ni","po","ru","sa","te")[($n * $_ + $n / 7) % 12] } 1 .. 3) . $n } 1 .. 5200;
while (my $line = <STDIN>) {
    chomp $line;
    my @out;
    for my $word (split / /, $line) {
        my $hit;
        for my $e (@exceptions) { $hit = $e if $e eq $word; }
        if (!defined $hit) { $word =~ s/([aeiou])([bdfgklmnprst])/$1-$2/g; }
        push @out, $word;
    }
    print join(" ", @out), "\n";
}
